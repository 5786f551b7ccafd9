"""What the planner's sensor asks Dagster for, and what it leaves alone."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dagster import AssetKey, DagsterInstance, RunRequest, SkipReason, build_sensor_context
from sqlalchemy import Engine, update

from platform_defs.ingest.codes import ErrorLevel, Operation, PlanStatus, Trigger
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.materialisation import IngestEnvironment, materialise_bucket
from platform_defs.ingest.planning.harvest_requests import TRY_AGAIN_AFTER
from platform_defs.ingest.planning.planner import plan_window
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.compiler import compile_all, compile_spec
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.blocks import block_endpoint, unblock_endpoint
from platform_defs.ingest.tasks.health import Trouble, lower_limit
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan
from sensors.ingest import keep_ingest_going, plan_due_windows
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.registry.making import GOOD, load_text

START = datetime.now(UTC) - timedelta(days=3)
# every harvest window that is due now, and no update bucket before somebody asks for a record
TEXT = GOOD.replace("start: 2026-01-01", f"start: {START:%F}")
HARVEST = AssetKey(["ingest", "demo", "items", "harvest"])
UPDATE = AssetKey(["ingest", "demo", "items", "update"])


@pytest.fixture
def instance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    load_text(engine, TEXT, now=datetime.now(UTC))
    with DagsterInstance.ephemeral() as instance:
        yield instance


def loaded_specs(engine: Engine) -> dict[AssetKey, Spec]:
    """What the code location knows that loads now."""
    return {
        AssetKey(["ingest", endpoint.provenance_code, endpoint.endpoint_name, operation.lower()]): compiled.spec
        for endpoint in compile_all(engine, datetime.now(UTC))
        for operation, compiled in endpoint.specs.items()
    }


def asked_for(instance: DagsterInstance, loaded: dict[AssetKey, Spec]) -> list[RunRequest | SkipReason]:
    with build_sensor_context(instance=instance) as context:
        return list(plan_due_windows(context, loaded))


def keys_of(found: list[RunRequest | SkipReason]) -> list[AssetKey]:
    return [key for each in found if isinstance(each, RunRequest) for key in each.asset_selection or ()]


def test_due_windows_are_requested_in_one_run(engine: Engine, instance: DagsterInstance) -> None:
    [request] = asked_for(instance, loaded_specs(engine))
    assert isinstance(request, RunRequest)
    assert request.asset_selection == [HARVEST]
    assert request.tags["dagster/asset_partition_range_start"] == f"{START:%F}"


def test_a_window_that_has_just_ended_waits_longer_while_its_source_has_trouble(
    engine: Engine, instance: DagsterInstance
) -> None:
    now = datetime.now(UTC)
    # the last window is due with this lag, and is not with twice as much, at any hour of the day
    since_midnight = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
    seconds = int(since_midnight.total_seconds() * 3 / 4)
    load_text(engine, TEXT.replace("size: 1d", f"size: 1d\n      safety_lag: {seconds}s"), now=now)
    specs = loaded_specs(engine)
    assert specs[HARVEST].window.safety_lag == timedelta(seconds=seconds)
    [request] = asked_for(instance, specs)
    trouble = Trouble("3 of 3 requests failed", keeps_half=False)
    lower_limit(engine, ("demo", "items", "HARVEST"), trouble, full=4, now=now)
    [patient] = asked_for(instance, specs)
    assert isinstance(request, RunRequest)
    assert isinstance(patient, RunRequest)
    end = "dagster/asset_partition_range_end"
    assert request.tags[end] == f"{now - timedelta(days=1):%F}"
    assert patient.tags[end] == f"{now - timedelta(days=2):%F}"


def test_a_source_that_dagster_does_not_know_yet_keeps_no_other_from_being_asked_for(
    engine: Engine, instance: DagsterInstance
) -> None:
    before = loaded_specs(engine)
    load_text(engine, TEXT.replace("code: demo", "code: aaa"), now=datetime.now(UTC))
    assert keys_of(asked_for(instance, before)) == [HARVEST]
    assert len(keys_of(asked_for(instance, loaded_specs(engine)))) == 2


def test_windows_of_another_size_are_not_requested_before_dagster_has_their_partitions(
    engine: Engine, instance: DagsterInstance
) -> None:
    before = loaded_specs(engine)
    load_text(engine, TEXT.replace("size: 1d", "size: 6h"), now=datetime.now(UTC))
    assert keys_of(asked_for(instance, before)) == []
    assert keys_of(asked_for(instance, loaded_specs(engine))) == [HARVEST]


def test_a_blocked_endpoint_is_left_alone_and_the_tick_says_what_to_do(
    engine: Engine, instance: DagsterInstance
) -> None:
    add_signals(engine, "demo", "items", ["1"], reason=None, requested_by="test", now=datetime.now(UTC))
    transact(
        engine,
        lambda connection: block_endpoint(
            connection, "demo", "items", reason="status 401", error_code="HTTP_401", task_id=1, now=datetime.now(UTC)
        ),
    )
    [skipped] = asked_for(instance, loaded_specs(engine))
    assert isinstance(skipped, SkipReason)
    assert "demo/items is blocked until `platform ingest unblock demo items`" in str(skipped.skip_message)
    unblock_endpoint(engine, "demo", "items")
    assert keys_of(asked_for(instance, loaded_specs(engine))) == [HARVEST, UPDATE]


def test_a_bucket_that_failed_is_asked_for_again_after_a_while_and_not_at_once(
    engine: Engine, instance: DagsterInstance
) -> None:
    loaded = loaded_specs(engine)
    add_signals(engine, "demo", "items", ["1"], reason=None, requested_by="test", now=datetime.now(UTC))
    assert UPDATE in keys_of(asked_for(instance, loaded))

    def refuse(number: int) -> None:
        raise ResponseError(ErrorLevel.DATA, "MADE_UP", "no")

    spec = loaded[UPDATE]
    source = MemorySource(spec.pagination, [], trouble=refuse)
    environment = IngestEnvironment(
        engine,
        lambda code, endpoint, operation: compile_spec(engine, code, endpoint, operation, now=datetime.now(UTC)),
        lambda spec: source,
        threads=1,
    )
    context = TriggerContext(Trigger.SIGNAL, "test")
    results = [
        materialise_bucket(environment, "demo", "items", bucket, context) for bucket in range(spec.update_buckets)
    ]
    [failed] = [result for result in results if result.report.status is PlanStatus.PARTIAL]
    assert keys_of(asked_for(instance, loaded)) == [HARVEST]
    long_ago = datetime.now(UTC) - TRY_AGAIN_AFTER - timedelta(minutes=1)
    aged = update(ing_plan).where(ing_plan.c.id == failed.plan.plan_id).values(updated_at=long_ago)
    transact(engine, lambda connection: connection.execute(aged))
    assert keys_of(asked_for(instance, loaded)) == [HARVEST, UPDATE]


def test_a_window_of_a_size_that_is_no_more_is_not_shown_as_a_partition_of_another(
    engine: Engine, instance: DagsterInstance
) -> None:
    day = START.replace(hour=0, minute=0, second=0, microsecond=0)
    now = datetime.now(UTC)
    compiled = compile_spec(engine, "demo", "items", Operation.HARVEST, now=now)
    for size in (timedelta(days=1), timedelta(hours=6)):
        window = Window(day, day + size)
        planned = plan_window(engine, compiled, window, schedule_instance_id=1, trigger=Trigger.MANUAL, now=now)
        done = update(ing_plan).where(ing_plan.c.id == planned.plan_id)
        long_ago = now - timedelta(hours=1)
        values = {"status_code": PlanStatus.COMPLETED, "updated_at": long_ago}
        transact(engine, lambda connection, done=done, values=values: connection.execute(done.values(values)))
    with build_sensor_context(instance=instance) as context:
        keep_ingest_going(context)
    records = instance.fetch_materializations(HARVEST, limit=10).records
    plans = [
        str(record.asset_materialization.metadata["plan"].value) for record in records if record.asset_materialization
    ]
    assert [record.partition_key for record in records] == [f"{day:%F}"]
    assert plans == [f"demo:items:HARVEST:{day:%Y%m%dT%H%M%SZ}:{day + timedelta(days=1):%Y%m%dT%H%M%SZ}:g1"]


def test_a_loaded_asset_with_other_buckets_is_not_asked_for(engine: Engine, instance: DagsterInstance) -> None:
    add_signals(engine, "demo", "items", ["1"], reason=None, requested_by="test", now=datetime.now(UTC))
    loaded = loaded_specs(engine)
    loaded[UPDATE] = replace(
        loaded[UPDATE], update_buckets=loaded[UPDATE].update_buckets + 1, operation=Operation.UPDATE
    )
    assert keys_of(asked_for(instance, loaded)) == [HARVEST]

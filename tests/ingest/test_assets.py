"""What an operator sees in Dagster: a partition per window, materialised once and with its counts, or failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from dagster import (
    AssetCheckSeverity,
    AssetKey,
    AssetsDefinition,
    DagsterExecutionInterruptedError,
    DagsterInstance,
    ExecuteInProcessResult,
    materialize,
)
from sqlalchemy import Engine

from assets.ingest.complete import check_outcome, complete_outcome
from assets.ingest.endpoint_assets import bucket_asset, window_asset
from assets.ingest.partitions import window_partitions
from platform_defs.ingest.codes import ErrorLevel, Operation, PlanStatus, TaskStatus
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.ledger.windows import open_windows
from platform_defs.ingest.materialisation import IngestEnvironment
from platform_defs.ingest.planning.cancelling import PlanChoice, cancel_plans
from platform_defs.ingest.planning.planner import queue_pending_slices
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.tasks.blocks import why_not_asked
from platform_defs.store.tables.ingest import ing_plan
from resources.database import DatabaseResource
from resources.http import HttpResource
from resources.ingest import IngestResource
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.planning.test_planner import BUSY, NOW, SPEC, end_tasks, plan, rows_of

GRID = WindowGrid.of(SPEC.window)
RANGE = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
# Dagster's own doing where one resource needs another
pytestmark = pytest.mark.filterwarnings("ignore:.*")

_opened: dict[str, IngestEnvironment] = {}


class TestedIngest(IngestResource):
    """The resource, over a source that lives in the test."""

    __test__ = False

    @contextmanager
    def opened(self) -> Iterator[IngestEnvironment]:
        yield _opened["here"]


def materialised(
    engine: Engine, spec: Spec, source: Any, instance: DagsterInstance, *keys: str
) -> ExecuteInProcessResult:
    _opened["here"] = IngestEnvironment(
        engine,
        lambda code, endpoint, operation: CompiledSpec(replace(spec, operation=operation)),
        lambda spec: source,
        clock=lambda: NOW,
        threads=1,
    )
    make = bucket_asset if spec.operation is Operation.UPDATE else window_asset
    asset = make(CompiledSpec(spec))
    assert isinstance(asset, AssetsDefinition)
    tags = dict(zip(RANGE, (keys[0], keys[-1]), strict=True)) if len(keys) > 1 else {}
    resource = TestedIngest(database=DatabaseResource(), http=HttpResource())
    return materialize(
        [asset],
        instance=instance,
        resources={"ingest": resource},
        partition_key=keys[0] if len(keys) == 1 else None,
        tags=tags,
        raise_on_error=False,
    )


def failure_of(result: ExecuteInProcessResult) -> str:
    return " ".join(str(event.event_specific_data) for event in result.all_events if event.is_step_failure)


def records_of(instance: DagsterInstance, key: AssetKey) -> dict[str, Any]:
    records = instance.fetch_materializations(key, limit=100).records
    return {str(record.partition_key): record.asset_materialization for record in records}


@pytest.fixture
def instance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    with DagsterInstance.ephemeral() as instance:
        yield instance


def test_a_window_is_materialised_with_its_counts_and_a_second_time_fetched_again(
    engine: Engine, instance: DagsterInstance
) -> None:
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(0).start) for n in range(3)])
    result = materialised(engine, SPEC, source, instance, "2026-01-01")
    assert result.success
    key = AssetKey(["ingest", "made_up", "items", "harvest"])
    [record] = records_of(instance, key).values()
    assert record.metadata["records inserted"].value == 3
    assert record.metadata["plan"].value.endswith(":g1")
    asked = len(source.requests)
    assert materialised(engine, SPEC, source, instance, "2026-01-01").success
    assert len(source.requests) == 2 * asked
    [second, _] = instance.fetch_materializations(key, limit=10).records
    assert second.asset_materialization is not None
    metadata = second.asset_materialization.metadata
    shown = {name: metadata[name].value for name in ("dagster/row_count", "records inserted")}
    assert shown == {"dagster/row_count": 3, "records inserted": 0}, (
        "the window has what it had, and nothing of it is new"
    )
    assert all(row.reported_at is not None for row in rows_of(engine, ing_plan))


def test_a_backfill_shows_its_own_cursor_and_not_the_watermark_of_the_harvest(
    engine: Engine, instance: DagsterInstance
) -> None:
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(n).start) for n in range(3)])
    assert materialised(engine, SPEC, source, instance, "2026-01-01", "2026-01-03").success
    backfill = replace(SPEC, operation=Operation.BACKFILL)
    assert materialised(engine, backfill, source, instance, "2026-01-02").success
    [record] = records_of(instance, AssetKey(["ingest", "made_up", "items", "backfill"])).values()
    assert record.metadata["cursor after"].value == GRID.window(1).start.timestamp(), "it goes back from its end"
    assert "cursor before" not in record.metadata, "it had none before it began"
    harvested = records_of(instance, AssetKey(["ingest", "made_up", "items", "harvest"]))["2026-01-03"]
    assert harvested.metadata["cursor after"].value == GRID.window(2).end.timestamp()


def test_of_many_windows_the_failed_one_fails_the_run_and_the_others_stay_materialised(
    engine: Engine, instance: DagsterInstance
) -> None:
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(n).start) for n in range(3)])
    answer = source._page

    def trouble(names: Any, url: Any) -> Any:
        if names["window"]["from"] == GRID.window(1).start:
            raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "the source says no")
        return answer(names, url)

    source._page = trouble  # type: ignore[method-assign]
    result = materialised(engine, SPEC, source, instance, "2026-01-01", "2026-01-03")
    assert not result.success
    key = AssetKey(["ingest", "made_up", "items", "harvest"])
    assert set(records_of(instance, key)) == {"2026-01-01", "2026-01-03"}
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    plans = {tag: plan for tag, plan in run.tags.items() if tag.startswith("platform/ingest_plan")}
    assert plans == {f"platform/ingest_plan.{row.window_from:%F}": row.plan_key for row in rows_of(engine, ing_plan)}, (
        "the plan of each window is found from the run"
    )
    messages = failure_of(result)
    assert "1 of 3 partitions are incomplete: 2026-01-02" in messages
    assert "The planner tries it again after 15 minutes; materialising it tries it now." in messages
    found = open_windows(engine, "made_up", "items", Operation.HARVEST)
    outcome = complete_outcome(Operation.HARVEST, found, None)
    assert not outcome["passed"]
    assert outcome["description"].startswith("1 window is not complete: 2026-01-02 00:00 (PARTIAL): the source says no")
    assert outcome["description"].endswith(
        "The planner tries it again after 15 minutes; materialising it tries it now."
    )
    told = complete_outcome(Operation.BACKFILL, found, None)["description"]
    assert told.endswith("nothing else tries a backfill's window again.")


def test_a_blocked_endpoint_is_named_with_what_to_do_by_the_run_and_the_check(
    engine: Engine, instance: DagsterInstance
) -> None:
    def refuse(number: int) -> None:
        raise ResponseError(ErrorLevel.FATAL, "HTTP_401", "status 401")

    source = MemorySource(SPEC.pagination, [], trouble=refuse)
    advice = "then run `platform ingest unblock made_up items`"
    first = failure_of(materialised(engine, SPEC, source, instance, "2026-01-01"))
    assert "2026-01-01: slice 1: FAILED (status 401). made_up/items is blocked since" in first
    assert advice in first
    plans, asked = len(rows_of(engine, ing_plan)), len(source.requests)
    second = failure_of(materialised(engine, SPEC, source, instance, "2026-01-02"))
    assert advice in second
    assert (len(rows_of(engine, ing_plan)), len(source.requests)) == (plans, asked), "nothing was planned or asked"
    found = open_windows(engine, "made_up", "items", Operation.HARVEST)
    outcome = complete_outcome(Operation.HARVEST, found, why_not_asked(engine, "made_up", "items"))
    assert advice in outcome["description"]


def test_the_run_of_a_window_that_somebody_cancels_fails_and_says_so(engine: Engine, instance: DagsterInstance) -> None:
    def cancel(number: int) -> None:
        cancel_plans(engine, "made_up", "items", Operation.HARVEST, PlanChoice(), reason="wrong key", now=NOW)

    source = MemorySource(SPEC.pagination, [item(n, GRID.window(0).start) for n in range(150)], trouble=cancel)
    messages = failure_of(materialised(engine, SPEC, source, instance, "2026-01-01"))
    said = f"slice 1: CANCELLED (somebody cancelled it at {NOW:%F %T} UTC: wrong key). It stays cancelled until"
    assert f"1 of 1 partitions are incomplete: 2026-01-01: {said}" in messages
    source.trouble = lambda number: None
    assert materialised(engine, SPEC, source, instance, "2026-01-01").success


def test_a_run_that_somebody_terminates_says_that_its_windows_go_on_and_how_to_take_them_back(
    engine: Engine, instance: DagsterInstance
) -> None:
    def terminate(number: int) -> None:
        raise DagsterExecutionInterruptedError

    backfill = replace(SPEC, operation=Operation.BACKFILL)
    source = MemorySource(SPEC.pagination, [], trouble=terminate)
    result = materialised(engine, backfill, source, instance, "2026-01-01", "2026-01-03")
    logs = [entry.user_message for entry in instance.all_logs(result.run_id)]
    said = [message for message in logs if "this run was stopped" in message]
    assert len(said) == 1
    wanted = "--operation backfill --from 2026-01-01T00:00 --to 2026-01-04T00:00"
    assert f"`platform ingest cancel made_up items {wanted}` takes it back" in said[0]


def test_an_update_bucket_is_materialised_and_an_endpoint_without_ids_has_none(
    engine: Engine, instance: DagsterInstance
) -> None:
    spec = replace(SPEC, operation=Operation.UPDATE, update_buckets=4)
    assert bucket_asset(CompiledSpec(spec)) is None
    assert SPEC.search is not None
    spec = replace(spec, detail=replace(SPEC.search, endpoint_name="by_id"))
    assert materialised(engine, spec, MemorySource(spec.pagination, []), instance, "3").success
    [bucket] = records_of(instance, AssetKey(["ingest", "made_up", "items", "update"])).items()
    assert bucket[0] == "3"
    assert bucket[1].metadata["nothing to do"].value.startswith("no record of this bucket is stale")


def test_windows_that_failed_for_different_reasons_are_named_with_their_own(
    engine: Engine, instance: DagsterInstance
) -> None:
    source = MemorySource(SPEC.pagination, [])

    def refuse(number: int) -> None:
        reason = "a wrong filter" if len(source.requests) < 2 else "a wrong page"
        raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", reason)

    source.trouble = refuse
    materialised(engine, SPEC, source, instance, "2026-01-01", "2026-01-03")
    said = check_outcome(engine, SPEC)["description"]
    named = "2026-01-01 00:00 (PARTIAL): a wrong filter; 2026-01-02 00:00, 2026-01-03 00:00 (PARTIAL): a wrong page. "
    assert said.startswith(f"3 windows are not complete: {named}")


def test_a_window_that_is_under_way_is_a_warning_and_one_that_failed_is_an_error(
    engine: Engine, instance: DagsterInstance
) -> None:
    seen: list[dict[str, Any]] = []

    def look(number: int) -> None:
        seen.append(check_outcome(engine, SPEC))
        raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "the source says no")

    materialised(engine, SPEC, MemorySource(SPEC.pagination, [], trouble=look), instance, "2026-01-01")
    assert seen[0]["severity"] is AssetCheckSeverity.WARN
    assert seen[0]["description"].startswith("1 window is not complete: 2026-01-01 00:00 (READY). It is under way: ")
    assert check_outcome(engine, SPEC)["severity"] is AssetCheckSeverity.ERROR


def test_a_window_with_more_slices_than_the_queue_has_room_for_is_under_way_and_did_not_fail(engine: Engine) -> None:
    planned = plan(engine, replace(SPEC, stock_limit=2), GRID.window(0), BUSY)
    assert planned.status is PlanStatus.PARTIAL
    shown = check_outcome(engine, SPEC)
    assert shown["severity"] is AssetCheckSeverity.WARN
    assert shown["description"].startswith("1 window is not complete: 2026-01-01 00:00 (PARTIAL). It is under way: ")
    end_tasks(engine, planned.plan_id, TaskStatus.FAILED)
    assert check_outcome(engine, SPEC)["severity"] is AssetCheckSeverity.WARN, "the other slices have no task yet"
    while queue_pending_slices(engine, planned.plan_id, NOW):
        end_tasks(engine, planned.plan_id, TaskStatus.FAILED)
    assert check_outcome(engine, SPEC)["severity"] is AssetCheckSeverity.ERROR


def test_an_update_bucket_says_what_was_due_what_was_set_aside_and_why_it_is_not_complete(
    engine: Engine, instance: DagsterInstance
) -> None:
    assert SPEC.search is not None
    spec = replace(
        SPEC, operation=Operation.UPDATE, update_buckets=1, detail=replace(SPEC.search, endpoint_name="by_id")
    )

    def signal(*ids: str) -> None:
        add_signals(engine, "made_up", "items", ids, reason=None, requested_by="test", now=NOW)

    signal("1", "gone")
    source = MemorySource(spec.pagination, [item(number, GRID.window(0).start) for number in range(3)])
    assert materialised(engine, spec, source, instance, "0").success
    assert check_outcome(engine, spec)["description"] == "every bucket that was begun is complete"
    key = AssetKey(["ingest", "made_up", "items", "update"])
    shown = records_of(instance, key)["0"].metadata
    assert (shown["asked for by signals"].value, shown["stale or of other expressions"].value) == (2, 0)
    assert shown["set aside because"].value == "- gone: the source has no record of this id"
    assert "records of other windows" not in shown

    def refuse(number: int) -> None:
        raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "the source says no")

    # with the one that was set aside, which is asked for once more
    signal("0", "1", "2")
    source.trouble = refuse
    failed = materialised(engine, spec, source, instance, "0")
    assert not failed.success
    run = instance.get_run_by_id(failed.run_id)
    assert run is not None
    assert run.tags["platform/ingest_plan"] == "made_up:items:UPDATE:b0of1:g2"
    said = check_outcome(engine, spec)["description"]
    assert said.startswith("1 bucket is not complete: bucket 0 (PARTIAL): the source says no; 4 ids were asked for")
    assert said.endswith("records that somebody asked for are tried again after 15 minutes.")
    source.trouble = lambda number: None
    assert materialised(engine, spec, source, instance, "0").success
    assert check_outcome(engine, spec)["passed"]


@pytest.mark.parametrize(("hours", "keys"), [(24, ["2026-01-01", "2026-01-02"]), (6, ["2026-01-01T00:00"])])
def test_partitions_are_the_windows(hours: int, keys: list[str]) -> None:
    size = GRID.size / 24 * hours
    spec = replace(SPEC, window=replace(SPEC.window, size=size))
    partitions = window_partitions(spec)
    assert partitions is not None
    grid = WindowGrid.of(spec.window)
    shown = partitions.get_partition_keys(current_time=NOW)
    assert shown[: len(keys)] == keys
    assert shown == [grid.key_of(window) for window in grid.windows_up_to(grid.start, NOW)]

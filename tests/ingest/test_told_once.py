"""Dagster is told of each complete window once: whoever completed it, and whoever dies on the way."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, build_sensor_context
from sqlalchemy import Engine, select, update

from assets.ingest import endpoint_assets
from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.ledger import reports
from platform_defs.ingest.ledger.reports import CLAIM, claim_report, mark_reported
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.spec.model import Spec
from platform_defs.store.engine import read, transact
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.tables.ingest import ing_plan
from sensors import ingest as ingest_sensors
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import GRID, Killed, executor
from tests.ingest.planning.test_planner import NOW, end_tasks, plan, rows_of
from tests.ingest.registry.making import GOOD, load_text
from tests.ingest.test_assets import instance, materialised

__all__ = ["instance"]
HARVEST = AssetKey(["ingest", "demo", "items", "harvest"])
# Dagster's own doing where one resource needs another
pytestmark = pytest.mark.filterwarnings("ignore:.*")


@pytest.fixture
def spec(engine: Engine) -> Spec:
    load_text(engine, GOOD, now=NOW)
    return compile_spec(engine, "demo", "items", Operation.HARVEST, now=NOW).spec


def source_of(spec: Spec) -> MemorySource:
    return MemorySource(spec.pagination, [item(n, GRID.window(n).start) for n in range(2)])


def told(instance: DagsterInstance) -> list[tuple[str, str]]:
    """Partition and plan of each materialisation, the first one first."""
    records = instance.fetch_materializations(HARVEST, limit=100).records
    found = [record.asset_materialization for record in records]
    return [(str(each.partition), str(each.metadata["plan"].value)[-2:]) for each in reversed(found) if each]


def upkeep(engine: Engine, instance: DagsterInstance) -> str:
    """A tick, more than a minute after the last change of every plan."""
    long_ago = update(ing_plan).values(updated_at=datetime.now(UTC) - timedelta(hours=1))
    transact(engine, lambda connection: connection.execute(long_ago))
    with build_sensor_context(instance=instance) as context:
        return str(ingest_sensors.keep_ingest_going(context).skip_message)


def run(engine: Engine, spec: Spec, source: MemorySource, instance: DagsterInstance, *keys: str) -> bool:
    return bool(materialised(engine, spec, source, instance, *keys).success)


def is_reported(engine: Engine) -> list[bool]:
    return [row.reported_at is not None for row in rows_of(engine, ing_plan)]


def test_a_window_that_another_executor_completes_during_the_run_is_told_once(
    engine: Engine, instance: DagsterInstance, spec: Spec
) -> None:
    source, said = source_of(spec), list[str]()

    def help_meanwhile(number: int) -> None:
        if number == 1:
            query = select(ing_plan.c.id).order_by(ing_plan.c.id.desc()).limit(1)
            second = read(engine, lambda connection: connection.execute(query).scalar_one())
            executor(engine, source).drain_plans([second])
            said.append(upkeep(engine, instance))

    source.trouble = help_meanwhile
    assert run(engine, spec, source, instance, "2026-01-01", "2026-01-02")
    assert "windows reported: 1" in said[0]
    assert told(instance) == [("2026-01-02", "g1"), ("2026-01-01", "g1")]
    assert "windows reported: 0" in upkeep(engine, instance)
    assert len(told(instance)) == 2


def test_a_run_that_tells_of_a_window_and_dies_before_it_has_noted_that_is_not_repeated(
    engine: Engine, instance: DagsterInstance, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(endpoint_assets, "mark_reported", away)
    run(engine, spec, source_of(spec), instance, "2026-01-01")
    assert (told(instance), is_reported(engine)) == ([("2026-01-01", "g1")], [False])
    upkeep(engine, instance)
    assert (told(instance), is_reported(engine)) == ([("2026-01-01", "g1")], [True])


def test_a_run_that_dies_before_it_has_told_of_its_window_is_made_good_for(
    engine: Engine, instance: DagsterInstance, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(endpoint_assets, "materialization", die)
        assert not run(engine, spec, source_of(spec), instance, "2026-01-01")
    assert (told(instance), is_reported(engine)) == ([], [False])
    upkeep(engine, instance)
    assert (told(instance), is_reported(engine)) == ([("2026-01-01", "g1")], [True])


def test_an_upkeep_that_dies_in_the_middle_is_made_good_for_by_the_next_one(
    engine: Engine, instance: DagsterInstance, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(spec)
    for number in range(2):
        executor(engine, source).drain_plans([plan(engine, spec, GRID.window(number), Estimate()).plan_id])

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ingest_sensors, "mark_reported", die)
        with pytest.raises(Killed):
            upkeep(engine, instance)
    assert (len(told(instance)), is_reported(engine)) == (1, [False, False])
    upkeep(engine, instance)
    assert (told(instance), is_reported(engine)) == ([("2026-01-01", "g1"), ("2026-01-02", "g1")], [True, True])


def test_a_window_that_was_fetched_again_meanwhile_is_not_told_of_as_it_was_before(
    engine: Engine, instance: DagsterInstance, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise StoreUnavailable("the database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(endpoint_assets, "mark_reported", away)
        run(engine, spec, source_of(spec), instance, "2026-01-01")
    assert run(engine, spec, source_of(spec), instance, "2026-01-01")
    upkeep(engine, instance)
    assert told(instance) == [("2026-01-01", "g1"), ("2026-01-01", "g2")]
    assert is_reported(engine) == [True, True]


def test_only_one_of_those_who_want_to_tell_may_and_another_one_after_a_while(engine: Engine) -> None:
    planned = plan(engine, estimate=Estimate())
    now = datetime.now(UTC)
    assert claim_report(engine, planned.plan_id, now) is None, "it is not complete"
    assert end_tasks(engine, planned.plan_id) is PlanStatus.COMPLETED
    first = claim_report(engine, planned.plan_id, now)
    assert first is not None
    assert not first.may_be_told
    assert claim_report(engine, planned.plan_id, now + CLAIM / 2) is None
    late = now + 2 * CLAIM
    assert reports.unreported_plans(engine, now, older_than=CLAIM, limit=9) == []
    assert reports.unreported_plans(engine, late, older_than=CLAIM, limit=9) == [planned.plan_id]
    second = claim_report(engine, planned.plan_id, late)
    assert second is not None
    assert second.may_be_told, "who claimed it first may have told Dagster and died"
    mark_reported(engine, [planned.plan_id], late)
    assert claim_report(engine, planned.plan_id, late + 2 * CLAIM) is None

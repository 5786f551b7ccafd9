"""After the expressions have changed each stored record is asked for once, also if its source gives nothing new."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine

from platform_defs.ingest.codes import Operation, PlanStatus, Trigger
from platform_defs.ingest.planning.planner import plan_bucket
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.planning.update_candidates import due_records, id_slices
from platform_defs.ingest.spec.model import CompiledSpec, OutputField, Spec
from platform_defs.store.tables.ingest import ing_record
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import DAY, Clock, executor, paged
from tests.ingest.planning.test_planner import plan, rows_of

COUNT, GONE, REFUSED, OLDER = 10, "3", "4", "5"


def mapped(*names: str) -> Spec:
    """The expressions that store these fields."""
    spec = paged()
    assert spec.search is not None
    fields = tuple(OutputField(name, f"$.{name}") for name in names)
    detail = replace(spec.search, endpoint_name="by_id")
    return replace(spec, detail=detail, update_buckets=1, output_fields=fields)


def paged_source(spec: Spec) -> MemorySource:
    found = [item(number, DAY.start + timedelta(hours=1), a=1, b=2) for number in range(COUNT)]
    return MemorySource(spec.pagination, found)


def harvest(engine: Engine, spec: Spec, source: MemorySource, clock: Clock) -> None:
    clock.pass_by(timedelta(hours=1))
    planned = plan(engine, spec, DAY, Estimate(), now=clock())
    assert executor(engine, source, clock).drain_plans([planned.plan_id])[planned.plan_id] is PlanStatus.COMPLETED


def due(engine: Engine, spec: Spec, clock: Clock) -> Sequence[str]:
    return sorted(due_records(engine, replace(spec, operation=Operation.UPDATE), 0, clock()).ids)


def refresh(engine: Engine, spec: Spec, source: MemorySource, clock: Clock) -> Sequence[str]:
    """Fetches what is due; returns which records that were."""
    clock.pass_by(timedelta(hours=1))
    update, ids = replace(spec, operation=Operation.UPDATE), due(engine, spec, clock)
    drafts = id_slices(update, 0, ids)
    planned = plan_bucket(
        engine, CompiledSpec(update), 0, drafts, schedule_instance_id=1, trigger=Trigger.SCHEDULE, now=clock()
    )
    assert executor(engine, source, clock).drain_plans([planned.plan_id])[planned.plan_id] is PlanStatus.COMPLETED
    return ids


def documents(engine: Engine) -> Mapping[str, Any]:
    return {row.provider_id: row.record for row in rows_of(engine, ing_record)}


def test_a_record_that_its_source_no_longer_gives_is_asked_for_once_with_each_expression(engine: Engine) -> None:
    first, second, clock = mapped("a"), mapped("b"), Clock()
    source = paged_source(first)
    everything = sorted(str(number) for number in range(COUNT))
    harvest(engine, first, source, clock)
    assert refresh(engine, first, source, clock) == []
    # gone, refused, and known to the source in an older version than the stored one
    source.items = [
        each | ({"updated": item(0, DAY.start)["updated"]} if each["id"] == OLDER else {})
        for each in source.items
        if each["id"] != GONE
    ]
    source.bad_ids = [REFUSED]
    assert refresh(engine, second, source, clock) == everything
    assert refresh(engine, second, source, clock) == []
    kept = {name: document for name, document in documents(engine).items() if "a" in document}
    assert sorted(kept) == [GONE, REFUSED, OLDER], "what cannot be had anew stays as it is"
    assert refresh(engine, mapped("a", "b"), source, clock) == everything, "other expressions, another try"
    assert refresh(engine, mapped("a", "b"), source, clock) == []


def test_a_record_that_was_stored_by_other_expressions_since_it_was_checked_is_due_again(engine: Engine) -> None:
    first, second, clock = mapped("a"), mapped("b"), Clock()
    source = paged_source(first)
    harvest(engine, second, source, clock)
    refresh(engine, first, source, clock)
    # somebody loads the second expressions by mistake: a window is harvested with them, before they are taken back
    harvest(engine, second, source, clock)
    everything = sorted(str(number) for number in range(COUNT))
    assert {name for name, document in documents(engine).items() if "b" in document} == set(everything)
    assert refresh(engine, first, source, clock) == everything
    assert {tuple(document) for document in documents(engine).values()} == {("a",)}
    assert refresh(engine, first, source, clock) == []


def test_a_record_that_was_harvested_anew_is_not_due_although_it_was_checked_with_older_expressions(
    engine: Engine,
) -> None:
    first, second, clock = mapped("a"), mapped("b"), Clock()
    source = paged_source(first)
    harvest(engine, second, source, clock)
    refresh(engine, first, source, clock)
    harvest(engine, second, source, clock)
    assert due(engine, second, clock) == []

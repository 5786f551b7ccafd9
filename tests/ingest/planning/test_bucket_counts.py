"""A bucket keeps its number when the Registry has more buckets: its records are then fetched by tasks of its own."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, delete, insert, update

from platform_defs.ingest.codes import Operation, PlanStatus, SliceStatus, TaskStatus, Trigger
from platform_defs.ingest.errors import PlanError
from platform_defs.ingest.identity import id_number
from platform_defs.ingest.planning.planner import PlannedWork, insert_tasks, plan_bucket
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.update_candidates import due_records, id_slices
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_signal, ing_task
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import executor, items_of, paged
from tests.ingest.planning.test_planner import NOW, rows_of


def update_of(buckets: int) -> Spec:
    base = paged()
    assert base.search is not None
    by_id = replace(base.search, endpoint_name="by_id")
    return replace(base, operation=Operation.UPDATE, update_buckets=buckets, detail=by_id)


def in_bucket_of_both(fewer: int, more: int) -> str:
    return next(each for each in map(str, range(1000)) if id_number(each) % more < fewer)


def plan_due(engine: Engine, spec: Spec, bucket: int) -> PlannedWork:
    drafts = id_slices(spec, bucket, due_records(engine, spec, bucket, NOW).ids)
    return plan_bucket(
        engine, CompiledSpec(spec), bucket, drafts, schedule_instance_id=1, trigger=Trigger.SIGNAL, now=NOW
    )


def signal(engine: Engine, name: str) -> None:
    add_signals(engine, "made_up", "items", [name], reason=None, requested_by="test", now=NOW)


def test_the_same_record_in_the_same_bucket_of_more_buckets_is_fetched_again(engine: Engine) -> None:
    name = in_bucket_of_both(16, 32)
    source = MemorySource(paged().pagination, items_of(1000))
    for buckets in (16, 32):
        signal(engine, name)
        planned = plan_due(engine, update_of(buckets), id_number(name) % buckets)
        assert (planned.status, planned.queued) == (PlanStatus.READY, 1)
        states = executor(engine, source).drain_plans([planned.plan_id])
        assert states == {planned.plan_id: PlanStatus.COMPLETED}
        assert {row.status_code for row in rows_of(engine, ing_signal)} == {"DONE"}
    assert [names["ids"] for _, names in source.requests] == [[name], [name]]
    assert len({task.idempotent_key for task in rows_of(engine, ing_task)}) == 2


def test_a_bucket_whose_task_was_swallowed_by_an_older_release_is_fetched_when_it_is_asked_for_again(
    engine: Engine,
) -> None:
    name, spec = in_bucket_of_both(16, 32), update_of(32)
    source = MemorySource(spec.pagination, items_of(1000))
    signal(engine, name)
    stuck = plan_due(engine, spec, id_number(name) % 32)
    transact(engine, lambda connection: connection.execute(delete(ing_task)))
    [piece] = rows_of(engine, ing_plan_slice)
    assert piece.status_code == SliceStatus.READY
    again = plan_due(engine, spec, id_number(name) % 32)
    assert (again.plan_id, again.queued) == (stuck.plan_id, 1)
    assert executor(engine, source).drain_plans([again.plan_id]) == {again.plan_id: PlanStatus.COMPLETED}


def test_a_slice_that_has_its_task_gets_no_second_one_whatever_made_the_key_of_the_first(engine: Engine) -> None:
    name, spec = in_bucket_of_both(16, 32), update_of(32)
    signal(engine, name)
    plan_due(engine, spec, id_number(name) % 32)
    # as an older release wrote it
    transact(engine, lambda connection: connection.execute(update(ing_task).values(idempotent_key="0" * 64)))
    again = plan_due(engine, spec, id_number(name) % 32)
    assert again.queued == 0
    [plan], pieces = rows_of(engine, ing_plan), rows_of(engine, ing_plan_slice)
    assert transact(engine, lambda connection: insert_tasks(connection, plan, pieces, NOW)) == 0
    assert len(rows_of(engine, ing_task)) == 1


def test_a_slice_whose_task_cannot_be_written_is_an_error_and_not_called_queued(engine: Engine) -> None:
    name, spec = in_bucket_of_both(16, 32), update_of(32)
    signal(engine, name)
    plan_due(engine, spec, id_number(name) % 32)
    [plan], [piece], [task] = (rows_of(engine, table) for table in (ing_plan, ing_plan_slice, ing_task))

    def swallow(connection: Any) -> None:
        row = {**task._mapping, "slice_id": piece.id + 1, "status_code": TaskStatus.SUCCEEDED}
        connection.execute(delete(ing_task))
        connection.execute(insert(ing_task).values(row))

    transact(engine, swallow)
    with pytest.raises(PlanError, match=r"1 of 1 slices of .*:b\d+of32:g1 got no task"):
        transact(engine, lambda connection: insert_tasks(connection, plan, [piece], NOW))

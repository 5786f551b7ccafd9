"""What ingest forgets every night: the batches of plans that ended long ago, and old events of cursors.

Records, plans, slices, tasks and runs stay, and so do the cursors themselves. Kept are also the batches and events of
plans that are open, because a run resumes after the last batch; the batches of plans with a record that is still set
aside, because somebody may want to see its request; those of windows that Dagster was not told of, because their counts
are made of them; and the event that moved each watermark to where it is.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, func, or_, select

from platform_defs.ingest.codes import NamespaceScope, PlanStatus
from platform_defs.store.deletion import ROWS_PER_TRANSACTION, delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan, ing_record_quarantine, ing_task, ing_task_run_batch
from platform_defs.store.tables.ingest_cursors import ing_cursor_event

PLANS_AT_A_TIME = 50
_plan, _batch, _event = ing_plan.c, ing_task_run_batch.c, ing_cursor_event.c
_OPEN = [status for status in PlanStatus if status.is_open]


@dataclass(frozen=True, slots=True)
class ForgottenCounts:
    """How many rows were deleted."""

    batches: int = 0
    cursor_events: int = 0


def forget_old_rows(engine: Engine, *, days: int, at: datetime) -> ForgottenCounts:
    """Deletes what ended more than `days` ago; with 0 days nothing. It may be stopped at any point and called again."""
    if days == 0:
        return ForgottenCounts()
    before = at - timedelta(days=days)
    return ForgottenCounts(
        batches=_forget_batches(engine, before),
        cursor_events=delete_old_rows(engine, ing_cursor_event, _is_old_event(before)),
    )


def _forget_batches(engine: Engine, before: datetime) -> int:
    """Plan by plan, and all batches of a plan together, because a replay of a batch needs the one before it."""
    newest = read(engine, lambda connection: connection.scalar(select(func.max(_batch.id))))
    total, behind = 0, 0
    while newest is not None:
        some = select(_plan.id).where(_plan.id > behind, _is_over(before)).order_by(_plan.id).limit(PLANS_AT_A_TIME)
        plan_ids = read(engine, lambda connection, some=some: list(connection.execute(some).scalars()))  # type: ignore[misc]
        if not plan_ids:
            break
        behind = plan_ids[-1]
        # SQLite gives the id of a deleted newest row to the next one, and records have noted it
        mine = and_(_batch.plan_id.in_(plan_ids), _batch.id < newest)
        while deleted := transact(engine, lambda connection, mine=mine: _delete_some(connection, mine)):  # type: ignore[misc]
            total += deleted
    return total


def _delete_some(connection: Connection, mine: ColumnElement[bool]) -> int:
    ids = list(connection.execute(select(_batch.id).where(mine).limit(ROWS_PER_TRANSACTION)).scalars())
    return connection.execute(delete(ing_task_run_batch).where(_batch.id.in_(ids))).rowcount if ids else 0


def _is_over(before: datetime) -> ColumnElement[bool]:
    """SQL: the plan has batches, and nobody needs them any more, as the docstring of this module says.

    Such a plan never opens again.
    """
    aside = ing_record_quarantine.c
    is_at_work = select(ing_task.c.id).where(ing_task.c.plan_id == _plan.id, ing_task.c.leased_until.is_not(None))
    is_looked_at = select(aside.id).where(
        aside.plan_id == _plan.id, aside.provenance_code == _plan.provenance_code, aside.status_code == "OPEN"
    )
    return and_(
        _plan.status_code.not_in(_OPEN),
        _plan.updated_at < before,
        or_(_plan.status_code != PlanStatus.COMPLETED, _plan.reported_at.is_not(None)),
        select(_batch.id).where(_batch.plan_id == _plan.id).exists(),
        ~is_at_work.exists(),
        ~is_looked_at.exists(),
    )


def _is_old_event(before: datetime) -> ColumnElement[bool]:
    """SQL: the event is old, its plan is not open, and it is not the one that moved a watermark to where it is."""
    later = ing_cursor_event.alias("later")
    is_open = select(_plan.id).where(_plan.id == _event.plan_id, _plan.status_code.in_(_OPEN))
    same = [
        later.c[name] == _event[name]
        for name in ("provenance_code", "operation_code", "namespace_scope_code", "namespace_key", "cursor_key")
    ]
    has_later = select(later.c.id).where(*same, later.c.created_at >= _event.created_at, later.c.id > _event.id)
    # each backfill and update has a cursor of its own, which nobody asks for after its plan
    is_of_a_plan = _event.namespace_scope_code == NamespaceScope.CUSTOM
    return and_(_event.created_at < before, ~is_open.exists(), or_(is_of_a_plan, has_later.exists()))

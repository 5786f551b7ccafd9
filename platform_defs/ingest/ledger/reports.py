"""Who tells Dagster that a window or bucket is complete: its run, or somebody else where an executor completed it.

Each is told once. Whoever wants to tell claims that first, so that no other one does at the same moment; who dies after
that leaves a claim that ends, and then the next one looks whether Dagster was told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, or_, select, update

from platform_defs.ingest.codes import PlanStatus
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan

# Between a claim and the note that Dagster was told are one event and one statement.
CLAIM = timedelta(seconds=60)
_plan = ing_plan.c


@dataclass(frozen=True)
class Claim:
    """The right to tell Dagster of a plan."""

    # somebody had claimed it before, and may have told Dagster before he died
    may_be_told: bool


def unreported_plans(engine: Engine, now: datetime, *, older_than: timedelta, limit: int) -> list[int]:
    """Complete plans, the oldest first; those that were completed or claimed a moment ago are left to who did that."""
    query = (
        select(_plan.id)
        .where(
            _plan.status_code == PlanStatus.COMPLETED,
            _plan.reported_at.is_(None),
            _plan.updated_at < now - older_than,
        )
        .order_by(_plan.id)
        .limit(limit)
    )
    return list(read(engine, lambda connection: connection.execute(query).scalars().all()))


def claim_report(engine: Engine, plan_id: int, now: datetime) -> Claim | None:
    """None where the plan is not complete, where Dagster was told, and where somebody else is about to tell it.

    The row's version counts the claims, and the time of its last change says when the last one was made.
    """
    mine = (
        update(ing_plan)
        .where(
            _plan.id == plan_id,
            _plan.status_code == PlanStatus.COMPLETED,
            _plan.reported_at.is_(None),
            or_(_plan.version == 0, _plan.updated_at < now - CLAIM),
        )
        .values(version=_plan.version + 1, updated_at=now)
    )

    def work(connection: Connection) -> Claim | None:
        if connection.execute(mine).rowcount != 1:
            return None
        claims = connection.execute(select(_plan.version).where(_plan.id == plan_id)).scalar_one()
        return Claim(may_be_told=claims > 1)

    return transact(engine, work)


def mark_reported(engine: Engine, plan_ids: Sequence[int], now: datetime) -> None:
    mine = update(ing_plan).where(_plan.id.in_(plan_ids))
    transact(engine, lambda connection: connection.execute(mine.values(reported_at=now, updated_at=now)))

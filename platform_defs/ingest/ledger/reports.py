"""Which complete windows Dagster has not heard of: those that another executor completed, or whose run died."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Engine, select, update

from platform_defs.ingest.codes import PlanStatus
from platform_defs.ingest.ledger.windows import PlanReport, plan_report
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan


def unreported_plans(engine: Engine, now: datetime, *, older_than: timedelta, limit: int) -> list[PlanReport]:
    """Complete plans, the oldest first; those that a run completed a moment ago are left to it."""
    table = ing_plan.c
    query = (
        select(table.id)
        .where(
            table.status_code == PlanStatus.COMPLETED,
            table.reported_at.is_(None),
            table.updated_at < now - older_than,
        )
        .order_by(table.id)
        .limit(limit)
    )
    ids = read(engine, lambda connection: connection.execute(query).scalars().all())
    return [plan_report(engine, plan_id) for plan_id in ids]


def mark_reported(engine: Engine, plan_ids: Sequence[int], now: datetime) -> None:
    mine = update(ing_plan).where(ing_plan.c.id.in_(plan_ids))
    transact(engine, lambda connection: connection.execute(mine.values(reported_at=now, updated_at=now)))

"""What earlier windows of an endpoint suggest about the next one."""

from datetime import timedelta

from sqlalchemy import Connection, Engine, func, select

from platform_defs.ingest.codes import BatchStatus, Operation, PlanStatus
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_task_run_batch

# The last windows of the endpoint: enough to even out a quiet night, few enough to follow a change.
LOOKED_AT = 7


def estimate_from_history(engine: Engine, provenance_code: str, endpoint_name: str) -> Estimate:
    """Records per hour and pages per window of the last complete windows, whoever fetched them."""

    def look(connection: Connection) -> Estimate:
        plan, batch = ing_plan.c, ing_task_run_batch.c
        recent = (
            select(plan.id, plan.window_from, plan.window_to)
            .where(
                plan.provenance_code == provenance_code,
                plan.endpoint_name == endpoint_name,
                plan.operation_code.in_([Operation.HARVEST, Operation.BACKFILL]),
                plan.status_code == PlanStatus.COMPLETED,
            )
            .order_by(plan.id.desc())
            .limit(LOOKED_AT)
        )
        plans = connection.execute(recent).all()
        if not plans:
            return Estimate()
        totals = (
            select(batch.plan_id, func.sum(batch.record_count), func.count())
            .where(batch.plan_id.in_([each.id for each in plans]), batch.status_code == BatchStatus.SUCCEEDED)
            .group_by(batch.plan_id)
        )
        counts = {plan_id: (int(records), int(pages)) for plan_id, records, pages in connection.execute(totals)}
        # every complete window has a page: one without any is so old that its batches were deleted
        known = [each for each in plans if each.id in counts]
        if not known:
            return Estimate()
        hours = sum((each.window_to - each.window_from) / timedelta(hours=1) for each in known)
        records, pages = (sum(column) for column in zip(*counts.values(), strict=True))
        return Estimate(records_per_hour=float(records) / hours, pages=pages // len(known))

    return read(engine, look)

"""Which windows and buckets are open by what the Registry says now, and how many were given up or cancelled.

After a change of the Registry an old window may be covered by complete windows of another size, or lie before the
endpoint's new start. Nobody can complete it any more, and nothing is missing: it does not count.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Engine, func, select

from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.errors import SpecError, UnknownEndpoint
from platform_defs.ingest.ledger.queue import GIVEN_UP, QueueKey
from platform_defs.ingest.ledger.windows import OpenPartition, newer_generations, open_buckets, open_windows
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.store.engine import ATTEMPTS, read
from platform_defs.store.tables.ingest import ing_plan, ing_task

# Source, endpoint and operation.
EndpointKey = tuple[str, str, str]


def open_partitions(
    engine: Engine, provenance_code: str, endpoint_name: str, operation: Operation, now: datetime
) -> Sequence[OpenPartition]:
    """What was begun and is not complete; of an endpoint that is gone or does not compile everything that was."""
    begins, buckets = None, None
    try:
        spec = compile_spec(engine, provenance_code, endpoint_name, operation, now=now).spec
        begins, buckets = spec.window.start, spec.update_buckets
    except (SpecError, UnknownEndpoint):
        pass
    if operation is Operation.UPDATE:
        return open_buckets(engine, provenance_code, endpoint_name, buckets)
    return open_windows(engine, provenance_code, endpoint_name, operation, begins=begins)


def count_given_up(engine: Engine, now: datetime, *, attempts: int = ATTEMPTS) -> dict[QueueKey, int]:
    """Tasks that failed or were given up, whose window or bucket is therefore not complete."""
    task = ing_task.c
    columns = (task.provenance_code, task.endpoint_name, task.operation_code, task.status_code, task.plan_id)
    query = select(*columns, func.count()).where(task.status_code.in_(GIVEN_UP)).group_by(*columns)
    rows = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    still_open = _open_plans(engine, ((row[0], row[1], row[2]) for row in rows), now)
    counts: Counter[QueueKey] = Counter()
    for source, endpoint, operation, status, plan_id, count in rows:
        if plan_id in still_open:
            counts[source, endpoint, operation, status] += count
    return dict(counts)


def count_cancelled(engine: Engine, now: datetime) -> dict[EndpointKey, int]:
    """Windows and buckets that stay cancelled until somebody asks for them again, by source, endpoint and operation."""
    plan = ing_plan.c
    query = select(plan.plan_key, plan.id, plan.provenance_code, plan.endpoint_name, plan.operation_code).where(
        plan.status_code == PlanStatus.CANCELLED
    )
    rows = read(engine, lambda connection: connection.execute(query).all())
    begun_anew = newer_generations(engine, [row.plan_key for row in rows])
    left = [row for row in rows if row.plan_key not in begun_anew]
    keys = {row.id: (row.provenance_code, row.endpoint_name, row.operation_code) for row in left}
    still_open = _open_plans(engine, keys.values(), now)
    return dict(Counter(key for plan_id, key in keys.items() if plan_id in still_open))


def _open_plans(engine: Engine, endpoints: Iterable[EndpointKey], now: datetime) -> set[int]:
    return {
        one.plan_id
        for source, endpoint, operation in set(endpoints)
        for one in open_partitions(engine, source, endpoint, Operation(operation), now)
    }

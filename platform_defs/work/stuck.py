"""What is stuck: rows of work, runners and sensors that should have moved on and did not.

Nothing here changes anything. A row is freed by `platform runner release`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, Row, func, select

from platform_defs.store.engine import ATTEMPTS, read
from platform_defs.store.tables.work import work
from platform_defs.work import leases, runners, sensor_ticks
from platform_defs.work.rows import OPEN_STATUSES, Status, is_due

# How long Dagster may take to launch the run of a request; then the request was lost, and the row is queued again.
HANDOVER = timedelta(minutes=2)
# A queue may hold thousands of rows of a backfill.
LOOKED_AT = 1000


@dataclass(frozen=True)
class Stuck:
    """Something that is stuck. `kind` is `row`, `queue`, `runner`, `sensor` or `task`; `problem` says what to do."""

    kind: str
    since: datetime
    problem: str


@dataclass(frozen=True)
class StuckRules:
    """After how long something counts as stuck, and how the runner shares its slots."""

    patience: timedelta
    # slots that only rows of the `first` kinds may take
    reserved: int
    first: Collection[str]
    # kinds that have a share of the slots: one of them that waits while another one runs is not stuck
    sharing: Collection[str]
    resource_limit: Callable[[str], int]


def find_stuck_work(engine: Engine, rules: StuckRules, now: datetime, *, attempts: int = ATTEMPTS) -> list[Stuck]:
    """Runners, sensors and rows (of the oldest LOOKED_AT open ones) that have not moved on for the rules' patience."""
    query = select(work).where(work.c.status.in_(sorted(OPEN_STATUSES)), is_due(now - rules.patience))
    old = work.c.created_at < now - rules.patience
    in_use = select(work.c.kind, work.c.resource, func.count()).where(work.c.status == Status.RUNNING)
    found = read(
        engine,
        lambda connection: connection.execute(query.where(old).order_by(work.c.id).limit(LOOKED_AT)).all(),
        attempts=attempts,
    )
    used = read(
        engine,
        lambda connection: connection.execute(in_use.group_by(work.c.kind, work.c.resource)).all(),
        attempts=attempts,
    )
    known = runners.all_runners(engine, attempts=attempts)
    alive = [runner for runner in known if runner.is_alive()]
    stuck = [*_running(found, now - rules.patience)]
    hanging = [runner for runner in known if runner.hangs() and runner.heartbeat_at < now - rules.patience]
    stuck += [Stuck("runner", runner.heartbeat_at, runners.describe_hanging(runner)) for runner in hanging]
    stuck += _waiting(found, used, max((runner.slots - runner.busy for runner in alive), default=0), rules)
    if alive and all(runner.started_at > now - rules.patience for runner in alive):
        return stuck  # nobody ticked while the platform was down, and its sensors have just begun again
    return stuck + list(_sensors(sensor_ticks.last_ticks(engine, attempts=attempts), now - rules.patience))


def _running(found: Collection[Row[Any]], before: datetime) -> Iterator[Stuck]:
    """Rows that are executed without lease, process or open run."""
    for row in found:
        if row.status != Status.RUNNING:
            continue
        free = f"`platform runner release {row.id}` frees it"
        claimed = row.claimed_at or row.heartbeat_at
        if row.lease_owner == leases.DAGSTER:
            if row.heartbeat_at < before - HANDOVER:
                yield Stuck("row", row.heartbeat_at, f"row of work {row.id} ({row.kind}) has no open run; {free}")
        elif row.leased_until is None or row.leased_until < before:
            yield Stuck("row", row.leased_until or claimed, f"row of work {row.id} ({row.kind}) has no lease; {free}")
        elif row.pid is None and claimed < before:
            yield Stuck("row", claimed, f"row of work {row.id} ({row.kind}) has no process; {free}")


def _waiting(found: Collection[Row[Any]], used: Collection[Any], free: int, rules: StuckRules) -> Iterator[Stuck]:
    """Rows that are due and wait although a slot is free for them."""
    resources, kinds = Counter[str](), Counter[str]()
    for kind, resource, count in used:
        kinds[kind] += count
        resources[resource] += count
    for row in found:
        has_slot = free > (0 if row.kind in rules.first else rules.reserved)
        shares = row.kind in rules.sharing and any(kinds[kind] for kind in rules.sharing)
        is_full = row.resource is not None and resources[row.resource] >= rules.resource_limit(row.resource)
        if row.status == Status.QUEUED and has_slot and not shares and not is_full:
            since = max(row.created_at, row.not_before or row.created_at)
            problem = f"row of work {row.id} ({row.kind}) waits although a slot is free; see the log of the runner"
            yield Stuck("queue", since, problem)


def _sensors(ticks: Collection[sensor_ticks.SensorTick], before: datetime) -> Iterator[Stuck]:
    for tick in ticks:
        if tick.succeeded_at is None or tick.succeeded_at < before:
            why = f": {tick.error}" if tick.error else "; is it switched on in the UI, and does the daemon run?"
            problem = f"sensor {tick.name} had no good tick{why}"
            yield Stuck("sensor", tick.succeeded_at or tick.failed_at or before, problem)

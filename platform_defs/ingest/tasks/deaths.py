"""Tasks that end the process which works on them: it can say nothing any more, so its successor counts.

A page that does not fit into memory, or a fault of a library, kills an executor without an error. Its tasks return to
the queue when their leases run out, and the next executor would die of the same one, for ever and without a word. With
it die tasks that only ran beside: which of them is the one is found by working on those that died repeatedly one at a
time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from platform_defs.ingest.codes import ErrorLevel, RunStatus
from platform_defs.ingest.tasks.picking import LEASED
from platform_defs.store.tables.ingest import ing_task, ing_task_run, ing_task_run_batch

# A task is given up after so many deaths at the same page.
MAX_DEATHS = 5
# From so many on it is no accident, such as one restart, any more: an executor works on one such task at a time.
SUSPECTED_FROM = 2
EXECUTOR_DIED = "EXECUTOR_DIED"
# What the run of a dead executor says. That of one which lost the database for as long says the same.
LEASE_RAN_OUT = "its executor let the lease run out"
# How many of the newest attempts are looked at: between two deaths some may have waited for their source.
_MOST_RUNS = 50


@dataclass(frozen=True)
class PastRun:
    """An attempt at a task, as far as it tells how the task goes on."""

    status: RunStatus
    error: str | None = None
    error_level: ErrorLevel | None = None
    # pages of the slice that were there when it ended; infinite where no further one follows; 0 if it stored none
    reached: float = 0

    @property
    def is_dead(self) -> bool:
        is_left = self.status is RunStatus.RUNNING
        return is_left or (self.status is RunStatus.FAILED and self.error == LEASE_RAN_OUT)

    @property
    def waits(self) -> bool:
        """Whether it was stopped, or its source had trouble: the task was put back, and the attempt says no more."""
        is_put_back = self.status is RunStatus.FAILED and self.error_level is ErrorLevel.TRANSIENT
        return is_put_back or self.status is RunStatus.CANCELLED


@dataclass(frozen=True)
class Deaths:
    """How many executors have died of a task at the page where it stands."""

    count: int
    # pages that are there; the next one is asked for when they die
    reached: float

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        place = "after its last page" if self.reached == math.inf else f"at page {int(self.reached) + 1}"
        return f"its executor died {times} {place}"


def deaths_at_one_page(runs: Iterable[PastRun]) -> Deaths:
    """Counts the deaths of the task's attempts, the oldest first, since it last got further or was given up.

    That an attempt has stored pages does not mean that it got further: where the source keeps the place itself, the
    slice begins again from its start after each death.
    """
    count, furthest = 0, 0.0
    for run in runs:
        if run.reached > furthest:
            count, furthest = 0, run.reached
        if run.is_dead:
            count += 1
        elif not run.waits:
            count = 0
    return Deaths(count, furthest)


def read_deaths(connection: Connection, task_id: int) -> Deaths | None:
    """The deaths of a task's executors; None if the attempt before did not end by one."""
    run, batch = ing_task_run.c, ing_task_run_batch.c
    left = select(run.id).where(run.task_id == task_id, run.status_code == RunStatus.RUNNING).limit(1)
    if connection.execute(left).first() is None:
        return None
    last_batch = select(func.max(batch.id)).where(batch.run_id == run.id).scalar_subquery()
    columns = (run.status_code, run.error, run.stats, last_batch.label("batch_id"))
    newest = select(*columns).where(run.task_id == task_id).order_by(run.attempt_no.desc()).limit(_MOST_RUNS)
    rows = connection.execute(newest).all()
    reached = _reached(connection, [row.batch_id for row in rows if row.batch_id is not None])
    return deaths_at_one_page(
        PastRun(RunStatus(row.status_code), row.error, _level(row.stats), reached.get(row.batch_id, 0))
        for row in reversed(rows)
    )


def works_on_suspect(connection: Connection, owner: str, *, besides: int) -> bool:
    """Whether the executor works on a task already, besides this one, of which another one has died."""
    task = ing_task.c
    query = select(task.id).where(
        task.status_code.in_(LEASED),
        task.lease_owner == owner,
        task.last_error_code == EXECUTOR_DIED,
        task.id != besides,
    )
    return connection.execute(query.limit(1)).first() is not None


def _reached(connection: Connection, batch_ids: Sequence[int]) -> dict[int, float]:
    """How many pages of its slice are there after each of the batches."""
    batch = ing_task_run_batch.c
    query = select(batch.id, batch.stats).where(batch.id.in_(batch_ids))
    found = {row.id: row.stats["nextHint"] for row in connection.execute(query)} if batch_ids else {}
    return {batch_id: math.inf if hint is None else hint["number"] - 1 for batch_id, hint in found.items()}


def _level(stats: Mapping[str, Any] | None) -> ErrorLevel | None:
    level = (stats or {}).get("errorLevel")
    return None if level is None else ErrorLevel(level)

"""How an attempt at a task ends: done, stopped, at its budget, or failed, to be tried again or given up."""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, select

from platform_defs.ingest.codes import ErrorLevel, RunStatus, TaskStatus
from platform_defs.ingest.cursors.advance import Lineage
from platform_defs.ingest.cursors.operations import advance_after
from platform_defs.ingest.errors import HELD_BACK, ResponseError
from platform_defs.ingest.execution.progress import FetchFailed, Progress, checkpoint, run_stats
from platform_defs.ingest.fetching.page_fetching import CompiledSnapshot
from platform_defs.ingest.tasks.blocks import block_endpoint
from platform_defs.ingest.tasks.health import HealthWatch, Seen, seen_in_error
from platform_defs.ingest.tasks.leases import LeasedTask, end_task, put_back
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan, ing_task_run

# A task is given up after this many attempts in a row without a new batch; its plan is then PARTIAL. Attempts that the
# rate gate has held back do not count: a large backfill may wait for its quota on many days.
MAX_ATTEMPTS = 5
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(minutes=10)
# A request that was given up because this executor stops: no fault of the source.
CANCELLED = "CANCELLED"
# The error code of a task that waits because its run has used up its budget of requests or seconds.
BUDGET_USED_UP = "BUDGET_USED_UP"
_log = logging.getLogger(__name__)

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class TaskEnds:
    """The ends of one attempt. What they return is the task's final state; None where it waits again."""

    engine: Engine
    snapshot: CompiledSnapshot
    leased: LeasedTask
    clock: Clock
    # is told how often the source fails, and how long it takes
    watch: HealthWatch

    def pause(self, progress: Progress, over_budget: str) -> TaskStatus | None:
        """The task makes room for others that wait, and goes on after its last batch."""
        now, pages = self.clock(), progress.batches_of_this_run
        error = f"{over_budget}: after {pages} {'page' if pages == 1 else 'pages'} the task waits for its next turn"
        _log.info("task %d: %s", self.leased.task_id, error)
        return transact(
            self.engine,
            lambda connection: put_back(
                connection,
                self.leased,
                now=now,
                not_before=now,
                stats=run_stats(progress),
                error_code=BUDGET_USED_UP,
                error=error,
                run_status=RunStatus.PARTIAL,
                checkpoint=checkpoint(progress),
            ),
        )

    def note(self, seen: Seen) -> None:
        """Tells the watch what a page, or a request that failed, has shown of the source."""
        spec = self.snapshot.spec
        partition = (spec.provenance_code, spec.endpoint_name, str(spec.operation))
        self.watch.note(partition, seen, self.clock(), full=spec.max_concurrent_slices)

    def end(
        self,
        status: TaskStatus,
        progress: Progress,
        code: str | None,
        error: str | None,
        *,
        failure: ResponseError | None = None,
    ) -> None:
        """Ends the task for good, with this status. `failure` is why a page could not be fetched."""
        stats, now = run_stats(progress, error=failure), self.clock()
        transact(
            self.engine,
            lambda connection: end_task(
                connection, self.leased, status, now=now, stats=stats, error_code=code, error=error
            ),
        )

    def stop(self, progress: Progress, *, is_between_pages: bool = True) -> TaskStatus | None:
        """Gives the task back; one that somebody cancelled is over."""
        now, place = self.clock(), checkpoint(progress) if is_between_pages else None
        return transact(
            self.engine,
            lambda connection: put_back(
                connection, self.leased, now=now, not_before=now, stats=run_stats(progress), checkpoint=place
            ),
        )

    def fail(self, error: ResponseError) -> TaskStatus | None:
        """Waits and tries again what may pass; what will not pass ends the task and says why."""
        progress = error.progress if isinstance(error, FetchFailed) else Progress(None)
        if error.code == CANCELLED:
            return self.stop(progress, is_between_pages=False)
        _log.warning("task %d: %s %s: %s", self.leased.task_id, error.level, error.code, error)
        self.note(seen_in_error(error))
        attempts = 0 if progress.batches_of_this_run else read(self.engine, self._failed_before)
        attempts += not error.is_held_back
        if error.level is ErrorLevel.TRANSIENT and attempts < MAX_ATTEMPTS:
            return self._wait(error, progress, attempts)
        status = TaskStatus.PARTIAL if error.level is ErrorLevel.TRANSIENT else TaskStatus.FAILED
        if error.level is ErrorLevel.FATAL:
            self._block(error)
        self.end(status, progress, error.code, str(error), failure=error)
        return status

    def _failed_before(self, connection: Connection) -> int:
        """How many attempts right before this one brought nothing because of the source.

        Attempts before the task was given up and asked for again do not count, nor do those whose executor died or
        that the rate gate held back.
        """
        run = ing_task_run.c
        query = select(run.status_code, run.stats).where(run.task_id == self.leased.task_id)
        code = run.stats["errorCode"].as_string()
        was_asked = code.is_(None) | ~code.startswith(HELD_BACK, autoescape=True)
        before = query.where(run.attempt_no < self.leased.attempt_no, run.status_code != RunStatus.CANCELLED, was_asked)
        rows = connection.execute(before.order_by(run.attempt_no.desc()).limit(MAX_ATTEMPTS)).all()
        fruitless = (row.status_code == RunStatus.FAILED and (row.stats or {}).get("pagesVisited") == 0 for row in rows)
        return sum(itertools.takewhile(bool, fruitless))

    def _wait(self, error: ResponseError, progress: Progress, attempts: int) -> TaskStatus | None:
        """Puts the task back until its source may answer again; each attempt in vain doubles the wait."""
        now = self.clock()
        not_before = error.not_before or now + min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempts - 1))
        again = f"attempt {attempts + 1} of {MAX_ATTEMPTS}, not before {not_before:%F %T} UTC"
        _log.warning("task %d is tried again: %s", self.leased.task_id, again)
        return transact(
            self.engine,
            lambda connection: put_back(
                connection,
                self.leased,
                now=now,
                not_before=not_before,
                stats=run_stats(progress, error=error),
                error_code=error.code,
                error=str(error),
            ),
        )

    def _block(self, error: ResponseError) -> None:
        spec, now = self.snapshot.spec, self.clock()
        _log.error("%s/%s is blocked: %s", spec.provenance_code, spec.endpoint_name, error)
        transact(
            self.engine,
            lambda connection: block_endpoint(
                connection,
                spec.provenance_code,
                spec.endpoint_name,
                reason=str(error),
                error_code=error.code,
                task_id=self.leased.task_id,
                now=now,
            ),
        )

    def advance_cursor(self) -> None:
        query = select(ing_plan).where(ing_plan.c.id == self.leased.plan_id)
        plan = read(self.engine, lambda connection: connection.execute(query).one())
        leased = self.leased
        lineage = Lineage(plan.schedule_instance_id, leased.plan_id, leased.slice_id, leased.task_id, leased.run_id)
        advance_after(self.engine, plan, self.snapshot.spec, self.clock(), lineage=lineage)

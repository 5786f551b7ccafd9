"""Drives a run: executes attempts of its nodes in threads, writes their results, hears of stops, retries, completes.

The tables are the truth. The driver changes nodes by conditional updates only, and looks at the run a few times a
second, so that what operators write into the tables takes effect at once. It knows nothing of Dagster: it reports what
happens, and whoever iterates over that shows it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.errors import Conflict
from platform_defs.chains.nodes.port import AttemptRequest, Perform, StopSignal
from platform_defs.chains.runs import node_rows, operations, settling
from platform_defs.chains.runs.advance import Step, advance
from platform_defs.chains.runs.attempts import Attempt, Attempts, Finished
from platform_defs.chains.runs.board import Board, deadline_of
from platform_defs.chains.runs.drives import lock_run
from platform_defs.chains.runs.happenings import (
    DatabaseAway,
    DriveEnd,
    Happening,
    Interrupted,
    NodeEnded,
    Parked,
    RunEnded,
    Superseded,
)
from platform_defs.chains.runs.node_rows import NodeRow
from platform_defs.chains.runs.whole_run import end_run, node_statuses, stop_nodes
from platform_defs.chains.states import NodeStatus, RunStatus, next_steps, stopped_nodes
from platform_defs.errors import one_line
from platform_defs.store.engine import is_transient, read, transact
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.tables.chains import job_run, job_run_drive
from platform_defs.work import leases, rows
from platform_defs.work.rows import EndedBy

PARALLEL = 8
# How often the run is looked at while nothing happens here.
POLL_S = 0.25
# What is due already cannot start at present, e.g. because the run is being stopped.
SHORTEST_PAUSE_S = 0.01
# A drive whose nodes all wait gives its slot back, unless one of them is tried again within this time.
SHORT_BACKOFF = timedelta(seconds=5)
# How long attempts have to end when the process is told to end: less than the runner waits for the process.
INTERRUPT_GRACE_S = 1.0
DATABASE_PAUSE_S = 1.0
OPERATOR = "operator"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Glance:
    """The columns of a run that tell its drive that somebody changed something."""

    status: RunStatus
    operation_no: int
    drive_no: int
    stop_requested_by: str | None

    @classmethod
    def of(cls, row: Any) -> "_Glance":
        return cls(RunStatus(row.status), row.operation_no, row.drive_no, row.stop_requested_by)


class RunDriver:
    """Drives one run until it ends, until all that is left waits, or until its process is told to end.

    `interrupted` is asked whether the process was told to end; `wake` wakes the runner after another run became due.
    Without `may_park` the drive waits in its process.
    """

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        drive_no: int,
        perform: Perform,
        *,
        parallel: int = PARALLEL,
        may_park: bool = True,
        interrupted: Callable[[], bool] = lambda: False,
        wake: Callable[[], object] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._engine = engine
        self._run_id = run_id
        self._drive_no = drive_no
        self._parallel = parallel
        self._may_park = may_park
        self._interrupted = interrupted
        self._wake = wake
        self._clock = clock
        self._attempts = Attempts(perform)
        # Results that are not written yet.
        self._inbox: list[Finished] = []
        self._must_reload = False
        # The process was told to end, and the run goes on in another one.
        self._is_leaving = False

    def drive(self) -> Iterator[Happening]:
        """Executes what can be executed; yields what happens, and last a DriveEnd."""
        step, is_away = self._begin, False
        while True:
            try:
                for happening in step():
                    yield happening
                    if isinstance(happening, DriveEnd):
                        return
                step, is_away = self._step, False
            except (StoreUnavailable, DBAPIError, PoolTimeout) as error:
                if not isinstance(error, StoreUnavailable) and not is_transient(error):
                    raise
                if not is_away:
                    _log.warning("run %s: the database does not answer: %s", self._run_id, one_line(error))
                    yield DatabaseAway(one_line(error))
                is_away = True
                time.sleep(DATABASE_PAUSE_S)

    # -- the begin ----------------------------------------------------------------------------------------------------

    def _begin(self) -> Iterator[Happening]:
        begun = transact(self._engine, self._take_over)
        if begun is None:
            yield Superseded()
            return
        run, nodes, failed, self._work_id = begun
        self._params, self._depth = run.params or {}, run.depth
        self._board = Board(parse_snapshot(run.dag_json), nodes)
        self._seen = _Glance.of(run)
        yield from failed

    def _take_over(self, connection: Connection) -> tuple[Row[Any], dict[str, NodeRow], list[Happening], int] | None:
        """Nodes that an earlier process left RUNNING are tried again; those that wait go on waiting in this drive."""
        run = lock_run(connection, self._run_id)
        if run is None or RunStatus(run.status).is_ended or run.drive_no != self._drive_no:
            return None
        now = self._clock()
        failed: list[Happening] = []
        for row in node_rows.load_nodes(connection, self._run_id).values():
            if row.is_waiting:
                node_rows.change(connection, self._run_id, row, {"drive_no": self._drive_no})
            elif row.status is NodeStatus.RUNNING:
                settled = settling.died(row, now)
                node_rows.change(connection, self._run_id, row, settled.values)
                failed += [settled.happening] if settled.happening else []
        if run.started_at is None:
            # Not only a PENDING run: one that was stopped or given up before it had begun, and retried, begins here.
            begins = {"started_at": now} | ({"status": RunStatus.RUNNING} if run.status == RunStatus.PENDING else {})
            connection.execute(update(job_run).where(job_run.c.run_id == self._run_id).values(begins))
        mine = (job_run_drive.c.run_id == self._run_id) & (job_run_drive.c.drive_no == self._drive_no)
        work_id = connection.execute(select(job_run_drive.c.work_id).where(mine)).scalar_one()
        begun = connection.execute(select(job_run).where(job_run.c.run_id == self._run_id)).one()
        return begun, node_rows.load_nodes(connection, self._run_id), failed, work_id

    # -- a step -------------------------------------------------------------------------------------------------------

    def _step(self) -> Iterator[Happening]:
        """Writes what attempts have given back, begins what is due, and waits until something happens."""
        self._hear_interrupt()
        now = self._clock()
        lines, finished = self._attempts.collect(now)
        self._inbox += finished
        yield from lines
        glance = read(self._engine, self._look)
        if glance is None or glance.drive_no != self._drive_no or glance.status.is_ended:
            for attempt in self._attempts:
                attempt.end("the run is over, or another process executes it")
            yield Superseded()
            return
        if glance.status is RunStatus.STOPPING:
            for attempt in self._attempts:
                attempt.end(_stop_reason(glance))
        if self._inbox or self._must_reload or glance != self._seen or self._has_something_to_start(glance, now):
            yield from self._advance(glance, now)
        end = self._end(glance) if not self._attempts else None
        if end is not None:
            yield from end
        else:
            self._attempts.wait(self._pause_s())

    def _look(self, connection: Connection) -> _Glance | None:
        columns = (job_run.c.status, job_run.c.operation_no, job_run.c.drive_no, job_run.c.stop_requested_by)
        row = connection.execute(select(*columns).where(job_run.c.run_id == self._run_id)).one_or_none()
        return None if row is None else _Glance.of(row)

    def _free(self, glance: _Glance) -> int:
        """How many attempts may begin."""
        may_start = glance.status is RunStatus.RUNNING and not self._is_leaving
        return self._parallel - len(self._attempts) if may_start else 0

    def _has_something_to_start(self, glance: _Glance, now: datetime) -> bool:
        board = self._board
        return self._free(glance) > 0 and (
            board.is_stale or bool(board.ready) or any(board.due_at(row, now) <= now for row in board.idle_rows())
        )

    def _advance(self, glance: _Glance, now: datetime) -> Iterator[Happening]:
        step = Step(
            self._run_id,
            self._drive_no,
            now,
            results=tuple(self._inbox),
            free=self._free(glance),
            reload=self._must_reload or glance != self._seen,
            is_leaving=self._is_leaving,
        )
        draft = transact(self._engine, lambda connection: advance(connection, self._board, step))
        self._inbox.clear()
        self._board.commit(draft)
        self._seen, self._must_reload = glance, draft.must_reload
        self._end_completed()
        for row in draft.started:
            self._start(row)
        yield from draft.happenings

    def _end_completed(self) -> None:
        """Ends attempts whose node an operator has completed; what they still give back is discarded."""
        for attempt in self._attempts:
            row = self._board.nodes[attempt.node.id]
            if row.status is not NodeStatus.RUNNING or row.attempt != attempt.number:
                attempt.end("the node was completed by hand")
                self._attempts.forget(attempt.node.id)

    def _start(self, row: NodeRow) -> None:
        node = self._board.dag.by_id[row.node_id]

        def request(stop: StopSignal, log: Callable[[str], None]) -> AttemptRequest:
            return AttemptRequest(self._run_id, node, row.attempt, self._drive_no, self._params, self._depth, stop, log)

        self._attempts.start(Attempt(node, row.attempt, deadline_of(node, row.started_at)), request)

    def _pause_s(self) -> float:
        """Until the next look at the run; shorter if a node becomes due or an attempt has used up its time before."""
        now = self._clock()
        idle = self._board.idle_rows() if len(self._attempts) < self._parallel else []
        times = [self._board.due_at(row, now) for row in idle]
        times += [attempt.deadline for attempt in self._attempts if attempt.deadline and attempt.abandon_at is None]
        soonest = min(((at - now).total_seconds() for at in times), default=POLL_S)
        return min(POLL_S, max(soonest, SHORTEST_PAUSE_S))

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self, glance: _Glance) -> Iterable[Happening] | None:
        """The last happenings of this drive if it has nothing to do any more; called when no attempt executes."""
        if self._inbox or self._must_reload:
            return None
        if glance.status is RunStatus.STOPPING:
            return self._after_end(transact(self._engine, self._end_stopped))
        if self._is_leaving:
            return [Interrupted()]
        if self._board.is_stale or self._board.ready:
            return None
        if not self._board.idle:
            return self._after_end(transact(self._engine, self._end_run))
        return transact(self._engine, lambda connection: self._park(connection, glance)) if self._may_park else None

    def _end_run(self, connection: Connection) -> list[Happening] | None:
        """A retry or a complete that came in this moment has locked the run before, or comes after its end."""
        run = lock_run(connection, self._run_id)
        if run is None or run.drive_no != self._drive_no:
            return None
        if RunStatus(run.status).is_ended:
            return [RunEnded(RunStatus(run.status))]  # By this drive: the answer to its commit was lost.
        if run.status != RunStatus.RUNNING:
            return None
        outcome = next_steps(self._board.dag, node_statuses(connection, self._run_id)).outcome
        if outcome is None:
            return None
        end_run(connection, self._run_id, outcome, at=self._clock())
        return [RunEnded(outcome)]

    def _end_stopped(self, connection: Connection) -> list[Happening] | None:
        """Ends a run that somebody has stopped; None if it goes on."""
        run = lock_run(connection, self._run_id)
        if run is None or run.status not in (RunStatus.STOPPING, RunStatus.STOPPED):
            return None
        now, reason = self._clock(), _stop_reason(_Glance.of(run))
        nodes = node_rows.load_nodes(connection, self._run_id)
        present = {name: row.status for name, row in nodes.items()}
        if run.status == RunStatus.STOPPING:
            stop_nodes(connection, self._run_id, self._board.dag, present, reason=reason, at=now)
            end_run(connection, self._run_id, RunStatus.STOPPED, at=now)
            stopped = [nodes[node_id] for node_id in stopped_nodes(self._board.dag, present)]
        else:  # The answer to the commit that stopped it was lost.
            stopped = [row for row in nodes.values() if row.status is NodeStatus.STOPPED]
        ended = [NodeEnded(row.node_id, NodeStatus.STOPPED, row.attempt, error=reason) for row in stopped]
        return [*ended, RunEnded(RunStatus.STOPPED)]

    def _after_end(self, happenings: list[Happening] | None) -> list[Happening] | None:
        if happenings is None:
            self._must_reload = True
        else:
            self._wake()
        return happenings

    def _park(self, connection: Connection, glance: _Glance) -> list[Happening] | None:
        """Gives the slot back if every node that is active waits; the same drive goes on when one of them is due."""
        now, idle = self._clock(), self._board.idle_rows()
        soon = [row for row in idle if not row.is_waiting and self._board.due_at(row, now) < now + SHORT_BACKOFF]
        until = min(self._board.due_at(row, now) for row in idle)
        if soon or until <= now:
            return None
        run = lock_run(connection, self._run_id)
        if run is None or _Glance.of(run) != glance or not leases.park(connection, self._work_id, until):
            return None
        return [Parked(until, tuple(row.waits_for for row in idle if row.waits_for is not None))]

    # -- interrupts ---------------------------------------------------------------------------------------------------

    def _hear_interrupt(self) -> None:
        """Somebody who terminates the run in the UI stops it; any other end of the process leaves the run as it is."""
        if self._is_leaving or not self._interrupted():
            return
        row = rows.get(self._engine, self._work_id)
        if row.cancel_requested and row.ended_by is EndedBy.OPERATOR:
            # A run that has ended in this moment is left as it is.
            with suppress(Conflict):
                operations.stop_run(self._engine, self._run_id, actor=OPERATOR, reason="terminated in the Dagster UI")
            return
        self._is_leaving = True
        for attempt in self._attempts:
            attempt.end("the platform is being stopped", INTERRUPT_GRACE_S)


def _stop_reason(glance: _Glance) -> str:
    return operations.stop_text(glance.stop_requested_by or "an operator")

"""The life of an execution: queued with a row of work, started by its run, finished by it or closed as dead.

Closing an execution and queueing the next one for an arrival that came meanwhile is one transaction, so that no arrival
is forgotten and no batch is executed twice at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.errors import AlreadyRunning, Contended, ModelFailed, TakenOver, UnknownModel
from platform_defs.arrivals.executions.inputs import inputs_of
from platform_defs.arrivals.executions.next_attempt import FIRST, Order, after_source_down
from platform_defs.arrivals.executions.running_batches import lock_running, mark_running, transact_until_uncontended
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus, Trigger, insert_tasks
from platform_defs.arrivals.executions.trigger_texts import trigger_text
from platform_defs.arrivals.kinds_of_work import MODEL_RUN
from platform_defs.arrivals.op_time import spellings
from platform_defs.arrivals.readiness import Standing, Verdict, Versions, judge, missing_tables
from platform_defs.arrivals.standings import load_standings
from platform_defs.sources.named import source_resource
from platform_defs.store.engine import transact
from platform_defs.store.repeating import once
from platform_defs.store.tables.arrivals import (
    metrics_kpi,
    metrics_model_input,
    metrics_model_running,
    metrics_task_log,
)
from platform_defs.store.tables.work import work
from platform_defs.work import leases, rows
from platform_defs.work.rows import EndedBy

MESSAGE_LENGTH = 2000
# How long the statement of an execution that another process closed is looked for at the source.
STATEMENT_WAIT = timedelta(minutes=5)


@dataclass(frozen=True)
class Execution:
    """An execution that has started. Its standing holds the arrivals that it reads; a later one makes it due again."""

    task_id: int
    standing: Standing
    order: Order = FIRST

    @property
    def batch(self) -> Batch:
        return self.standing.model_id, self.standing.op_time


class Notify(Protocol):
    """Writes the deliveries of a successful execution in the transaction that closes it; returns how many."""

    def __call__(
        self, connection: Connection, *, task_id: int, model_id: str, op_time: str, kpi_ids: Sequence[str], at: datetime
    ) -> int: ...


def queue_executions(
    connection: Connection,
    standings: Sequence[Standing],
    why: Trigger,
    now: datetime,
    *,
    order: Order = FIRST,
    triggers: Mapping[Batch, str] | None = None,
    priority: int = rows.PRIORITY,
) -> dict[Batch, int]:
    """Queues an execution of each batch that has none under way; returns the ids of the new tasks.

    An execution that is queued and waits for a time of its own, after a death or because its source was down, starts at
    once instead, and is returned too. `triggers` are the texts that the tag `user` of the runs shall have;
    by default the one of `why`.

    The batches' rows in `metrics_model_running` stay locked until the caller's transaction ends. Whoever closes an
    execution locks its row first and looks for arrivals afterwards: either it sees the arrival that the caller
    recorded, or the caller finds that the batch is no longer running.
    """
    by_batch = {(standing.model_id, standing.op_time): standing for standing in standings}
    running = lock_running(connection, sorted(by_batch))
    hurried = _hurry(connection, running)
    wanted = sorted(batch for batch in by_batch if batch not in running)
    if not wanted:
        return hurried
    texts = triggers or {}
    payloads = [
        {"model_id": batch[0], "op_time": batch[1], "trigger": texts.get(batch, trigger_text(why))} for batch in wanted
    ]
    queued = rows.add(
        connection,
        MODEL_RUN,
        payloads,
        priority=priority,
        not_before=now + order.pause if order.pause else None,
        resources=[source_resource(by_batch[batch].source) for batch in wanted],
    )
    tasks = insert_tasks(
        connection,
        [
            {
                "model_id": model_id,
                "op_time": op_time,
                "status": TaskStatus.RUNNING,
                "start_time": now,
                "trigger_code": why,
                "attempt": order.attempt,
                "crashes": order.crashes,
                "try_number": order.try_number,
                "inputs": inputs_of(by_batch[model_id, op_time].arrived),
                "work_id": row.id,
                "run_id": row.run_id,
            }
            for (model_id, op_time), row in zip(wanted, queued, strict=True)
        ],
    )
    if lost := mark_running(connection, tasks):
        raise Contended(f"{len(lost)} batches were queued by somebody else between our look and our write")
    return tasks | hurried


def _hurry(connection: Connection, running: Mapping[Batch, int]) -> dict[Batch, int]:
    """Those of the running executions that waited for a time of their own; now they start at once."""
    if not running:
        return {}
    log = metrics_task_log.c
    query = select(log.id, log.work_id).where(log.id.in_(list(running.values())), log.work_id.is_not(None))
    work_ids = {work_id: task_id for task_id, work_id in connection.execute(query)}
    hurried = {work_ids[work_id] for work_id in rows.hurry(connection, list(work_ids))}
    return {batch: task_id for batch, task_id in running.items() if task_id in hurried}


def queue_due_batches(engine: Engine, batches: Sequence[Batch], why: Trigger, now: datetime) -> dict[Batch, int]:
    """Queues those of the batches that are due, judged in the same transaction; returns the ids of the new tasks."""

    def queue(connection: Connection) -> dict[Batch, int]:
        due = [standing for standing in load_standings(connection, batches) if judge(standing) is Verdict.DUE]
        texts = {(standing.model_id, standing.op_time): trigger_text(why, standing) for standing in due}
        return queue_executions(connection, due, why, now, triggers=texts) if due else {}

    return transact_until_uncontended(engine, queue)


def start_queued_execution(
    engine: Engine, batch: Batch, work_id: int, run_id: str, now: datetime, *, process: str | None = None
) -> Execution:
    """Starts the execution that was queued with this row of work, in the run of that row.

    `process` is the full name of the process that executes it. Whoever finds the execution dead ends that process.
    """

    def start(connection: Connection) -> Execution:
        running = lock_running(connection, [batch]).get(batch)
        task = connection.execute(select(metrics_task_log).where(metrics_task_log.c.id == running)).one_or_none()
        if task is None or task.work_id != work_id:
            raise ModelFailed(f"work {work_id} has no execution to make: it was closed meanwhile")
        row = connection.execute(select(work).where(work.c.id == work_id).with_for_update()).one_or_none()
        if row is not None and row.run_id != run_id and row.lease_owner != leases.DAGSTER:
            raise AlreadyRunning  # the row of work has another run; one that Dagster made too late must not start
        if task.versions is not None and task.run_id != run_id:
            raise AlreadyRunning  # another run of the same row of work has started it
        return _start(connection, task, run_id, process, now)

    return transact(engine, start)


def start_operator_execution(
    engine: Engine, model_id: str, op_time: str, run_id: str, now: datetime, *, process: str | None = None
) -> Execution:
    """Starts an execution that an operator launched, even before all tables have arrived, never beside another one.

    An execution of the batch that waits for a time of its own, after a death or because its source was down, is not
    made beside this one: the operator's run makes it, at once.
    """
    batch = (model_id, op_time)

    def start(connection: Connection) -> Execution:
        if running := lock_running(connection, [batch]):
            task = connection.execute(select(metrics_task_log).where(metrics_task_log.c.id == running[batch])).one()
            if task.run_id == run_id and task.work_id is None:
                # Started by this run already: the answer to the commit was lost.
                return _start(connection, task, run_id, process, now)
            if task.work_id is None or not rows.take_waiting(connection, task.work_id, f"run {run_id} executes it"):
                raise AlreadyRunning
            own = update(metrics_task_log).where(metrics_task_log.c.id == task.id).values(work_id=None)
            connection.execute(own)
            return _start(connection, task, run_id, process, now)
        row = {
            "model_id": model_id,
            "op_time": op_time,
            "status": TaskStatus.RUNNING,
            "start_time": now,
            "trigger_code": Trigger.OPERATOR,
            "run_id": run_id,
        }
        tasks = insert_tasks(connection, [row])
        if mark_running(connection, tasks):
            raise AlreadyRunning
        task = connection.execute(select(metrics_task_log).where(metrics_task_log.c.id == tasks[batch])).one()
        return _start(connection, task, run_id, process, now)

    return transact(engine, start)


def finish_execution(
    engine: Engine,
    execution: Execution,
    status: TaskStatus,
    notify: Notify,
    *,
    message: str | None = None,
    compute_count: int | None = None,
    storage_count: int | None = None,
    failure_code: FailureCode | None = None,
    retries: int | None = None,
) -> int | None:
    """Closes the execution, writes its webhook deliveries, and queues the next one if a table arrived meanwhile.

    An execution whose source did not answer is queued again, at most `retries` times, unless a table arrived meanwhile.
    Returns the id of the next task. Raises TakenOver if the recovery took this process for dead and closed the task.
    """
    batch = model_id, op_time = execution.batch
    outcome = {
        "status": status,
        "message": message and message[:MESSAGE_LENGTH],
        "compute_count": compute_count,
        "storage_count": storage_count,
        "failure_code": failure_code,
    }

    def close(connection: Connection) -> int | None:
        fence(connection, execution)
        now = datetime.now(UTC)
        _close_task(connection, execution.task_id, outcome, now)
        if failure_code is FailureCode.SOURCE and (order := after_source_down(execution.order, retries)) is not None:
            (standing,) = load_standings(connection, [batch])
            if judge(standing) is Verdict.DUE and standing.arrived == execution.standing.arrived:
                return queue_executions(connection, [standing], Trigger.RETRY, now, order=order)[batch]
        store_read_versions(connection, batch, execution.standing.arrived)
        if status is TaskStatus.SUCCESS:
            kpis = select(metrics_kpi.c.kpi_id).where(metrics_kpi.c.model_id == model_id).order_by(metrics_kpi.c.id)
            notify(
                connection,
                task_id=execution.task_id,
                model_id=model_id,
                op_time=op_time,
                kpi_ids=list(connection.execute(kpis).scalars()),
                at=now,
            )
        (standing,) = load_standings(connection, [batch])
        if judge(standing) is Verdict.DUE:
            return queue_executions(connection, [standing], Trigger.AGAIN, now)[batch]
        return None

    def is_closed(connection: Connection, _: int | None) -> bool:
        """Whoever else closes a task says who ended it."""
        log = metrics_task_log.c
        mine = (log.id == execution.task_id) & (log.status == status) & log.ended_by.is_(None)
        return connection.execute(select(log.id).where(mine)).first() is not None

    return transact_until_uncontended(engine, once(close, is_closed))


def fence(connection: Connection, execution: Execution) -> None:
    """Keeps others from closing the execution until the transaction ends; raises TakenOver if it is closed already."""
    if lock_running(connection, [execution.batch]).get(execution.batch) != execution.task_id:
        raise TakenOver(f"task {execution.task_id} was taken for dead and closed while this process went on")


def close_dead_execution(
    connection: Connection, task_id: int, batch: Batch, reason: str, ended_by: EndedBy, now: datetime
) -> Row[Any] | None:
    """Closes the task of an execution whose process died; None if somebody has closed the task meanwhile.

    Returns the task as it was. Its statement, which may still run at the source, is looked for from now on.
    """
    if lock_running(connection, [batch]).get(batch) != task_id:
        return None
    task = connection.execute(select(metrics_task_log).where(metrics_task_log.c.id == task_id)).one()
    outcome = {
        "status": TaskStatus.FAILED,
        "message": f"{ended_by}: {reason}"[:MESSAGE_LENGTH],
        "ended_by": ended_by,
        "statement_until": None if task.versions is None else now + STATEMENT_WAIT,
    }
    _close_task(connection, task_id, outcome, now)
    return task


def store_read_versions(connection: Connection, batch: Batch, versions: Versions) -> None:
    """Stores which arrivals the last closed execution read. A version that differs makes the batch due again."""
    model_id, op_time = batch
    table = metrics_model_input
    connection.execute(delete(table).where(table.c.model_id == model_id, table.c.op_time.in_(spellings(op_time))))
    # The opTime is stored as the arrival's row spells it, because the sweep joins the two tables by it.
    inputs = [
        {"model_id": model_id, "op_time": written, "dependency_table_name": name, "arrival_time": arrival}
        for (name, written), arrival in versions.items()
    ]
    if inputs:
        connection.execute(insert(table), inputs)


def _start(connection: Connection, task: Row[Any], run_id: str, process: str | None, now: datetime) -> Execution:
    """Reads which arrivals the execution uses, and notes them in its task."""
    found = load_standings(connection, [(task.model_id, task.op_time)])
    if not found:
        raise UnknownModel(f"there is no model {task.model_id}")
    (standing,) = found
    versions = {
        name if written == task.op_time else f"{name} {written}": arrival.isoformat()
        for (name, written), arrival in standing.arrived.items()
    }
    connection.execute(
        update(metrics_task_log)
        .where(metrics_task_log.c.id == task.id)
        .values(
            start_time=now,
            run_id=run_id,
            process=process,
            versions=versions,
            inputs=inputs_of(standing.arrived),
            missing_tables=missing_tables(standing) or None,
        )
    )
    return Execution(task.id, standing, Order(task.attempt, task.crashes, task.try_number))


def _close_task(connection: Connection, task_id: int, outcome: Mapping[str, Any], now: datetime) -> None:
    connection.execute(update(metrics_task_log).where(metrics_task_log.c.id == task_id).values(**outcome, end_time=now))
    connection.execute(delete(metrics_model_running).where(metrics_model_running.c.task_id == task_id))

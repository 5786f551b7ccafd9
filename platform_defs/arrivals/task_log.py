"""The task log: one execution per batch at a time, begun with a row of work, closed once, begun again if needed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.arrivals.errors import AlreadyRunning, ArrivalsError, ModelFailed, UnknownModel
from platform_defs.arrivals.kinds_of_work import MODEL_RUN
from platform_defs.arrivals.op_time import spellings
from platform_defs.arrivals.ports import Notify
from platform_defs.arrivals.readiness import Standing, Verdict, Versions, judge, missing_tables
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import (
    metrics_kpi,
    metrics_model_input,
    metrics_model_running,
    metrics_task_log,
)
from platform_defs.store.upsert import upsert
from platform_defs.work import rows

T = TypeVar("T")

MESSAGE_LENGTH = 2000
ROUNDS = 5


class TaskStatus(StrEnum):
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class Trigger(StrEnum):
    """Who wanted the execution."""

    ARRIVAL = "ARRIVAL"  # a request
    AGAIN = "AGAIN"  # a table arrived while the batch was being executed
    SENSOR = "SENSOR"  # an arrival that an ETL job wrote itself, or that a crash left
    RECOVERY = "RECOVERY"  # its process died
    OPERATOR = "OPERATOR"  # launched in the UI, whether or not all tables arrived


@dataclass(frozen=True)
class Task:
    """A row of the task log."""

    id: int
    model_id: str
    op_time: str
    status: TaskStatus
    message: str | None = None
    compute_count: int | None = None
    storage_count: int | None = None


@dataclass(frozen=True)
class Begun:
    """An execution that has read its versions; from here on an arrival makes the batch due again."""

    task_id: int
    standing: Standing


class TakenOver(ArrivalsError):
    """The execution was closed by somebody else: nothing that it still does may count."""


class Contended(ArrivalsError):
    """Two began the same batch at the same moment: the later one looks again and finds it running."""


def decide(engine: Engine, work: Callable[[Connection], T]) -> T:
    """A transaction that may begin executions; where it meets another one, it is made again from the start."""
    for _ in range(ROUNDS):
        try:
            return transact(engine, work)
        except Contended:
            continue
    return transact(engine, work)


def trigger(
    connection: Connection,
    batches: Sequence[Batch],
    why: Trigger,
    now: datetime,
    *,
    attempt: int = 1,
) -> dict[Batch, int]:
    """Begins an execution of each batch that is not being executed; the ids of those that were begun.

    The guard's rows stay locked until the caller's transaction ends. Whoever closes an execution locks its row first
    and then looks for arrivals: either it sees the caller's, or the caller does not see it running any more.
    """
    running = _lock(connection, batches)
    wanted = sorted(batch for batch in batches if batch not in running)
    if not wanted:
        return {}
    payloads = [{"model_id": model_id, "op_time": op_time} for model_id, op_time in wanted]
    tasks = [
        {
            "model_id": model_id,
            "op_time": op_time,
            "status": TaskStatus.RUNNING,
            "start_time": now,
            "trigger_code": why,
            "attempt": attempt,
            "work_id": row.id,
            "run_id": row.run_id,
        }
        for (model_id, op_time), row in zip(wanted, rows.add(connection, MODEL_RUN, payloads), strict=True)
    ]
    begun = _insert(connection, tasks)
    _guard(connection, begun)
    owners = _lock(connection, wanted)
    lost = [batch for batch in wanted if owners[batch] != begun[batch]]
    if lost:
        raise Contended(f"{len(lost)} batches were begun by somebody else between our look and our write")
    return begun


def begin_due(engine: Engine, batches: Sequence[Batch], why: Trigger, now: datetime) -> dict[Batch, int]:
    """Judges the batches in the transaction that begins those that are due."""

    def queue(connection: Connection) -> dict[Batch, int]:
        found = load_standings(connection, batches)
        due = [(one.model_id, one.op_time) for one in found if judge(one) is Verdict.DUE]
        return trigger(connection, due, why, now) if due else {}

    return decide(engine, queue)


def begin(engine: Engine, batch: Batch, work_id: int, run_id: str, now: datetime) -> Begun:
    """Called by the run of a row of work: reads the versions that this execution will have seen."""

    def note(connection: Connection) -> Begun:
        running = _lock(connection, [batch]).get(batch)
        task = connection.execute(select(metrics_task_log).where(metrics_task_log.c.id == running)).one_or_none()
        if task is None or task.work_id != work_id:
            raise ModelFailed(f"work {work_id} has no execution to make: it was closed meanwhile")
        if task.versions is not None and task.run_id != run_id:
            raise AlreadyRunning  # a second run of the same row
        return _read_versions(connection, task, run_id, now)

    return transact(engine, note)


def begin_by_operator(engine: Engine, model_id: str, op_time: str, run_id: str, now: datetime) -> Begun:
    """The operator's will: runs whether or not all tables arrived, but never beside a running one."""

    def note(connection: Connection) -> Begun:
        if _lock(connection, [(model_id, op_time)]):
            raise AlreadyRunning
        row = {
            "model_id": model_id,
            "op_time": op_time,
            "status": TaskStatus.RUNNING,
            "start_time": now,
            "trigger_code": Trigger.OPERATOR,
            "run_id": run_id,
        }
        begun = _insert(connection, [row])
        _guard(connection, begun)
        task_id = begun[model_id, op_time]
        if _lock(connection, [(model_id, op_time)])[model_id, op_time] != task_id:
            raise AlreadyRunning
        task = connection.execute(select(metrics_task_log).where(metrics_task_log.c.id == task_id)).one()
        return _read_versions(connection, task, run_id, now)

    return transact(engine, note)


def finish(
    engine: Engine,
    begun: Begun,
    status: TaskStatus,
    notify: Notify,
    *,
    message: str | None = None,
    compute_count: int | None = None,
    storage_count: int | None = None,
) -> int | None:
    """Closes the execution, writes its deliveries, and begins the next one if a table arrived meanwhile.

    Returns the task of the next one. Raises TakenOver where somebody else, who took us for dead, closed it before.
    """
    batch = (begun.standing.model_id, begun.standing.op_time)
    ended = {
        "status": status,
        "message": message and message[:MESSAGE_LENGTH],
        "compute_count": compute_count,
        "storage_count": storage_count,
    }

    def close(connection: Connection) -> int | None:
        fence(connection, begun)
        now = datetime.now(UTC)
        _close(connection, begun.task_id, ended, now)
        remember(connection, batch, begun.standing.arrived)
        if status is TaskStatus.SUCCESS:
            kpis = select(metrics_kpi.c.kpi_id).where(metrics_kpi.c.model_id == batch[0]).order_by(metrics_kpi.c.id)
            notify(
                connection,
                task_id=begun.task_id,
                model_id=batch[0],
                op_time=batch[1],
                kpi_ids=list(connection.execute(kpis).scalars()),
                at=now,
            )
        (standing,) = load_standings(connection, [batch])
        if judge(standing) is Verdict.DUE:
            return trigger(connection, [batch], Trigger.AGAIN, now)[batch]
        return None

    return decide(engine, close)


def fence(connection: Connection, begun: Begun) -> None:
    """Holds the execution until the transaction ends; raises TakenOver where it is no longer ours to write for."""
    batch = (begun.standing.model_id, begun.standing.op_time)
    if _lock(connection, [batch]).get(batch) != begun.task_id:
        raise TakenOver(f"task {begun.task_id} was taken for dead and closed while this process went on")


def close_dead(connection: Connection, task_id: int, batch: Batch, message: str, now: datetime) -> bool:
    """Closes an execution whose process is gone; False if it was closed meanwhile."""
    if _lock(connection, [batch]).get(batch) != task_id:
        return False
    _close(connection, task_id, {"status": TaskStatus.FAILED, "message": message[:MESSAGE_LENGTH]}, now)
    return True


def remember(connection: Connection, batch: Batch, versions: Versions) -> None:
    """What the last ended execution read: only a version that differs makes the batch due again."""
    model_id, op_time = batch
    table = metrics_model_input
    connection.execute(delete(table).where(table.c.model_id == model_id, table.c.op_time.in_(spellings(op_time))))
    # as the arrival's row spells it, so that a sweep finds one by the other
    rows = [
        {"model_id": model_id, "op_time": written, "dependency_table_name": name, "arrival_time": arrival}
        for (name, written), arrival in versions.items()
    ]
    if rows:
        connection.execute(insert(table), rows)


def ended(engine: Engine, task_ids: Sequence[int]) -> dict[int, Task]:
    """Those of the tasks that are not RUNNING any more."""
    log = metrics_task_log.c
    query = select(metrics_task_log).where(log.id.in_(task_ids), log.status != TaskStatus.RUNNING)
    return {row.id: _task(row) for row in read(engine, lambda connection: connection.execute(query).all())}


def successors(engine: Engine, failed: Sequence[Task]) -> dict[int, int]:
    """Of failed tasks: the one that makes it again because the process had died, begun as this one was closed."""
    log = metrics_task_log.c
    query = (
        select(log.id, log.model_id, log.op_time, log.trigger_code)
        .where(in_batches(log.model_id, log.op_time, [(task.model_id, task.op_time) for task in failed]))
        .order_by(log.id)
    )
    later = read(engine, lambda connection: connection.execute(query).all()) if failed else []
    found = {}
    for task in failed:
        batch = (task.model_id, task.op_time)
        following = next((row for row in later if (row.model_id, row.op_time) == batch and row.id > task.id), None)
        if following is not None and following.trigger_code == Trigger.RECOVERY:
            found[task.id] = following.id
    return found


def last_success(connection: Connection, batch: Batch) -> Task | None:
    log = metrics_task_log.c
    query = (
        select(metrics_task_log)
        .where(log.model_id == batch[0], log.op_time == batch[1], log.status == TaskStatus.SUCCESS)
        .order_by(log.id.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _task(row)


def _lock(connection: Connection, batches: Sequence[Batch]) -> dict[Batch, int]:
    """The batches that are being executed, by task; nobody closes or begins one of them before we commit."""
    guard = metrics_model_running.c
    query = (
        select(guard.model_id, guard.op_time, guard.task_id)
        .where(in_batches(guard.model_id, guard.op_time, batches))
        .order_by(guard.model_id, guard.op_time)
        # the hint keeps the optimiser from reading a small table whole, and so from waiting for unrelated batches
        .with_hint(metrics_model_running, "FORCE INDEX (PRIMARY)", "mysql")
        .with_hint(metrics_model_running, "FORCE INDEX (PRIMARY)", "mariadb")
        .with_for_update()
    )
    return {(model_id, op_time): task_id for model_id, op_time, task_id in connection.execute(query)}


def _insert(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[Batch, int]:
    connection.execute(insert(metrics_task_log), [dict(row) for row in rows])
    log = metrics_task_log.c
    query = select(log.model_id, log.op_time, log.id).where(
        in_batches(log.model_id, log.op_time, [(row["model_id"], row["op_time"]) for row in rows]),
        log.run_id.in_([row["run_id"] for row in rows]),
    )
    return {(model_id, op_time): task_id for model_id, op_time, task_id in connection.execute(query)}


def _guard(connection: Connection, begun: Mapping[Batch, int]) -> None:
    rows = [
        {"model_id": model_id, "op_time": op_time, "task_id": task_id} for (model_id, op_time), task_id in begun.items()
    ]
    upsert(connection, metrics_model_running, rows, key=["model_id", "op_time"], update="nothing")


def _read_versions(connection: Connection, task: Row[Any], run_id: str, now: datetime) -> Begun:
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
        .values(start_time=now, run_id=run_id, versions=versions, missing_tables=missing_tables(standing) or None)
    )
    return Begun(task.id, standing)


def _close(connection: Connection, task_id: int, values: Mapping[str, Any], now: datetime) -> None:
    connection.execute(update(metrics_task_log).where(metrics_task_log.c.id == task_id).values(**values, end_time=now))
    connection.execute(delete(metrics_model_running).where(metrics_model_running.c.task_id == task_id))


def _task(row: Row[Any]) -> Task:
    return Task(
        row.id, row.model_id, row.op_time, TaskStatus(row.status), row.message, row.compute_count, row.storage_count
    )

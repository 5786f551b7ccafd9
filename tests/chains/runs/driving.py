"""Runs that tests write into the tables, executors that tests control, and drives without Dagster."""

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, insert, select, update

from platform_defs.chains.nodes.port import AttemptRequest, NodeResult, Outcome
from platform_defs.chains.runs.driver import RunDriver
from platform_defs.chains.runs.drives import Drive, begin_drive, lock_run, open_drive
from platform_defs.chains.runs.happenings import DriveEnd, Happening
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node
from platform_defs.store.tables.work import work
from platform_defs.work.rows import Status
from tests.waiting import PATIENCE_S


def node(node_id: str, *depends_on: str, **other: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "test", "dependsOn": list(depends_on), **other}


def start_run(engine: Engine, nodes: Sequence[Mapping[str, Any]], **columns: Any) -> str:
    """Writes a run, its nodes and its first drive, as the start of a chain does; returns its id."""
    run_id = str(uuid.uuid4())

    def write(connection: Connection) -> None:
        values = {"run_id": run_id, "job_name": "test", "status": RunStatus.PENDING, "dag_json": {"nodes": list(nodes)}}
        connection.execute(insert(job_run).values(values | columns))
        rows = [{"run_id": run_id, "node_id": item["id"], "status": NodeStatus.PENDING} for item in nodes]
        connection.execute(insert(job_run_node), rows)
        run = lock_run(connection, run_id)
        assert run is not None
        claim(connection, begin_drive(connection, run, "start"))

    transact(engine, write)
    return run_id


def claim(connection: Connection, drive: Drive) -> None:
    """The row of work as it is while a process executes it."""
    claimed = {"status": Status.RUNNING, "lease_owner": "test", "attempts": work.c.attempts + 1}
    connection.execute(update(work).where(work.c.id == drive.work_id).values(claimed))


def close_drive(engine: Engine, run_id: str) -> None:
    """The row of work as the runner leaves it when the process of the newest drive has died."""

    def close(connection: Connection) -> None:
        ids = select(job_run_drive.c.work_id).where(job_run_drive.c.run_id == run_id)
        connection.execute(update(work).where(work.c.id.in_(ids.scalar_subquery())).values(status=Status.FAILED))

    transact(engine, close)


def next_drive(engine: Engine, run_id: str) -> int:
    def write(connection: Connection) -> int:
        run = lock_run(connection, run_id)
        assert run is not None
        drive = open_drive(connection, run_id) or begin_drive(connection, run, "test")
        claim(connection, drive)
        return drive.drive_no

    return transact(engine, write)


class Script:
    """An executor for all nodes of a run: each attempt is played by the function of its node, or succeeds."""

    def __init__(self, **plays: Callable[[AttemptRequest], Outcome]) -> None:
        self.plays = plays
        self.calls: list[tuple[str, int]] = []
        self.ended: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.begun: dict[str, threading.Event] = defaultdict(threading.Event)

    def __call__(self, request: AttemptRequest) -> Outcome:
        with self._lock:
            self.calls.append((request.node.id, request.attempt))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self.begun[request.node.id].set()
        try:
            play = self.plays.get(request.node.id)
            return NodeResult() if play is None else play(request)
        finally:
            with self._lock:
                self._at_once -= 1
                self.ended.append(request.node.id)


class Driving:
    """A drive in a thread of its own, as it would be in a process."""

    def __init__(self, engine: Engine, run_id: str, perform: Callable[[AttemptRequest], Outcome], **options: Any):
        self.interrupt = threading.Event()
        drive_no = options.pop("drive_no", None) or newest_drive(engine, run_id)
        self._driver = RunDriver(engine, run_id, drive_no, perform, interrupted=self.interrupt.is_set, **options)
        self.happenings: list[Happening] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            for happening in self._driver.drive():
                self.happenings.append(happening)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> "Driving":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.wait()
        self.interrupt.set()

    def wait(self) -> DriveEnd:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the drive does not end: {self.happenings}"
        if self.error is not None:
            raise self.error
        end = self.happenings[-1]
        assert isinstance(end, DriveEnd)
        return end


def drive(engine: Engine, run_id: str, perform: Callable[[AttemptRequest], Outcome], **options: Any) -> DriveEnd:
    with Driving(engine, run_id, perform, **options) as driving:
        return driving.wait()


def newest_drive(engine: Engine, run_id: str) -> int:
    return int(run_row(engine, run_id).drive_no)


def run_row(engine: Engine, run_id: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(select(job_run).where(job_run.c.run_id == run_id)).one()


def node_row(engine: Engine, run_id: str, node_id: str) -> Any:
    with engine.connect() as connection:
        query = select(job_run_node).where(job_run_node.c.run_id == run_id, job_run_node.c.node_id == node_id)
        return connection.execute(query).one()


def statuses(engine: Engine, run_id: str) -> dict[str, str]:
    with engine.connect() as connection:
        query = select(job_run_node.c.node_id, job_run_node.c.status).where(job_run_node.c.run_id == run_id)
        return {row.node_id: str(row.status) for row in connection.execute(query)}


def operate(engine: Engine, run_id: str, node_id: str | None = None, run: Any = None, **node_values: Any) -> None:
    """What an operation writes: the node's values, the run's, and the number that tells the drive to look again."""

    def write(connection: Connection) -> None:
        lock_run(connection, run_id)
        if node_id is not None:
            one = (job_run_node.c.run_id == run_id) & (job_run_node.c.node_id == node_id)
            connection.execute(update(job_run_node).where(one).values(node_values))
        values = {"operation_no": job_run.c.operation_no + 1, **(run or {})}
        connection.execute(update(job_run).where(job_run.c.run_id == run_id).values(values))

    transact(engine, write)


def edges(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for item in nodes:
        for dependency in item["dependsOn"]:
            yield dependency, item["id"]

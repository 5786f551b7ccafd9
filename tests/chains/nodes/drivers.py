"""Drives runs of chains in threads, with the real node types, as processes of the runner do."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Engine, func, select, update

from platform_defs.chains.definitions import create_chain
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.execution import perform
from platform_defs.chains.nodes.port import NodeContext, NodeStopped, NodeTypes, Outcome
from platform_defs.chains.runs.driver import RunDriver
from platform_defs.chains.runs.starting import start_chain, start_sub_run
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node
from platform_defs.store.tables.work import work
from tests.waiting import PATIENCE_S, until


class HoldCfg(NodeCfg):
    pass


class Hold:
    """A node that does nothing until it is told to end."""

    name = "hold"
    cfg_model = HoldCfg

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.heard: list[str | None] = []

    def execute(self, context: NodeContext, cfg: HoldCfg) -> Outcome:
        self.begun.set()
        context.stop.wait(PATIENCE_S)
        self.heard.append(context.stop.reason)
        raise NodeStopped


class Drivers:
    """Drives every run that has a row of work, each in a thread, as processes of the runner do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.hold = Hold()
        environment = NodeEnvironment(engine, start_sub_run=start_sub_run)
        self.types: NodeTypes = node_types({"hold": self.hold}, environment=environment)
        self.begun: set[tuple[str, int]] = set()
        self.threads: list[threading.Thread] = []

    def until_ended(self, run_id: str, meanwhile: Callable[[], object] = lambda: None) -> str:
        def look() -> str | None:
            self._begin_new()
            meanwhile()
            status = self.column(run_id, job_run.c.status)
            return status if status in ("SUCCESS", "FAILED", "STOPPED") else None

        status = until("the end of the run", look)
        assert status is not None
        for thread in self.threads:
            thread.join()
        return status

    def _begin_new(self) -> None:
        query = select(job_run_drive.c.run_id, job_run_drive.c.drive_no).join(
            work, work.c.id == job_run_drive.c.work_id
        )
        with self.engine.connect() as connection:
            rows = [(row.run_id, row.drive_no) for row in connection.execute(query.where(work.c.status == "QUEUED"))]
        for new in set(rows) - self.begun:
            self.begun.add(new)
            self._set_work(*new, status="RUNNING", attempts=1)
            self.threads.append(threading.Thread(target=self._drive, args=new))
            self.threads[-1].start()

    def _drive(self, run_id: str, drive_no: int) -> None:
        driver = RunDriver(self.engine, run_id, drive_no, partial(perform, self.engine, self.types), may_park=False)
        for _ in driver.drive():
            pass
        self._set_work(run_id, drive_no, status="SUCCEEDED")

    def _set_work(self, run_id: str, drive_no: int, **values: Any) -> None:
        """As the runner does when it claims a row, and when the process has ended."""
        drive = job_run_drive
        mine = select(drive.c.work_id).where(drive.c.run_id == run_id, drive.c.drive_no == drive_no)
        change = update(work).where(work.c.id == mine.scalar_subquery()).values(**values)
        transact(self.engine, lambda connection: connection.execute(change))

    def column(self, run_id: str, column: Any) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(select(column).where(job_run.c.run_id == run_id)).scalar_one()

    def node(self, run_id: str, node_id: str = "n") -> Any:
        query = select(job_run_node).where(job_run_node.c.run_id == run_id, job_run_node.c.node_id == node_id)
        with self.engine.connect() as connection:
            return connection.execute(query).one()

    def runs(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(job_run)).scalar_one())

    def chain(self, name: str, *nodes: Mapping[str, Any]) -> str:
        dag = {"nodes": list(nodes)}
        return create_chain(self.engine, self.types, name=name, description=None, dag_json=dag, actor="ann").chain_id

    def start(self, chain_id: str, **params: Any) -> str:
        return start_chain(self.engine, chain_id, params=params, actor="ann", trigger="api").run_id


def calling(chain: str, **params: Any) -> dict[str, Any]:
    return {"id": "n", "type": "chain", "cfg": {"chain": chain, "params": params}}

"""The node type `chain`: sub-runs that real drivers execute, nested, failed, retried and stopped."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, update

from platform_defs.chains.definitions import create_chain, set_chain_enabled
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.execution import perform
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeStopped, NodeTypes, Outcome, Waiting
from platform_defs.chains.runs.driver import RunDriver
from platform_defs.chains.runs.operations import retry_node, stop_run
from platform_defs.chains.runs.starting import start_chain, start_sub_run
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node
from platform_defs.store.tables.work import work
from tests.chains.nodes.attempts import Bench
from tests.waiting import until

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_servers_too = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True
)


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
        context.stop.wait(60)
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

        status = until("the end of the run", look, 30)
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


@on_servers_too
def test_nested_sub_chains_hand_params_down_and_artifacts_up(engine: Engine) -> None:
    drivers = Drivers(engine)
    drivers.chain(
        "innermost",
        {"id": "first", "type": "print", "cfg": {"message": "x"}},
        {"id": "last", "type": "print", "dependsOn": ["first"], "cfg": {"message": "${params.day}"}},
    )
    drivers.chain("inner", calling("innermost", day="${params.day}"))
    run_id = drivers.start(drivers.chain("outer", calling("inner", day="${params.day}")), day="20251219")
    assert drivers.until_ended(run_id) == "SUCCESS"
    artifact = drivers.node(run_id).artifact_json
    inner = artifact["artifacts"]["n"]
    assert inner["artifacts"] == {"last": {"message": "20251219"}}
    assert drivers.column(inner["runId"], job_run.c.depth) == 2
    assert drivers.column(inner["runId"], job_run.c.parent_run_id) == artifact["runId"]
    assert drivers.runs() == 3


@on_sqlite
def test_a_chain_that_starts_itself_ends_ten_deep(engine: Engine) -> None:
    drivers = Drivers(engine)
    run_id = drivers.start(drivers.chain("loop", calling("loop")))
    assert drivers.until_ended(run_id) == "FAILED"
    assert drivers.runs() == 11
    with engine.connect() as connection:
        deepest = connection.execute(select(job_run.c.run_id).where(job_run.c.depth == 10)).scalar_one()
    assert "at most 10 deep" in drivers.node(deepest).last_error


@on_sqlite
def test_a_retry_starts_a_new_sub_run_after_a_failure(engine: Engine) -> None:
    drivers = Drivers(engine)
    drivers.chain("sub", {"id": "x", "type": "print", "cfg": {"message": "${params.missing}"}})
    run_id = drivers.start(drivers.chain("top", calling("sub")))
    assert drivers.until_ended(run_id) == "FAILED"
    failed = drivers.node(run_id)
    first = failed.last_error.split()[2]
    assert failed.last_error == f"the run {first} of the chain sub ended as FAILED"
    retry_node(engine, run_id, "n", actor="ann")
    assert drivers.until_ended(run_id) == "FAILED"
    again = drivers.node(run_id)
    assert again.attempt == 2
    assert first not in again.last_error
    assert drivers.runs() == 3


@on_servers_too
def test_a_stop_of_the_run_stops_the_sub_run(engine: Engine) -> None:
    drivers = Drivers(engine)
    drivers.chain("innermost", {"id": "x", "type": "hold"})
    drivers.chain("inner", calling("innermost"))
    run_id = drivers.start(drivers.chain("outer", calling("inner")))
    is_asked = threading.Event()

    def stop_once_all_runs_are_at_work() -> None:
        if drivers.hold.begun.is_set() and not is_asked.is_set():
            is_asked.set()
            stop_run(engine, run_id, actor="bob")

    assert drivers.until_ended(run_id, stop_once_all_runs_are_at_work) == "STOPPED"
    with engine.connect() as connection:
        statuses = list(connection.execute(select(job_run.c.status)).scalars())
    assert statuses == ["STOPPED"] * 3
    assert drivers.hold.heard == ["the run was stopped by bob"]


@on_sqlite
class TestOneAttempt:
    def bench(self, engine: Engine) -> Bench:
        bench = Bench(engine, Drivers(engine).types)
        bench.begin()
        return bench

    def test_who_takes_over_waits_for_the_sub_run_that_was_started_before(self, engine: Engine) -> None:
        bench, drivers = self.bench(engine), Drivers(engine)
        drivers.chain("sub", {"id": "x", "type": "print"})
        first = bench.perform("chain", {"chain": "sub"})
        assert isinstance(first, Waiting)
        bench.next_attempt()
        assert bench.perform("chain", {"chain": "sub"}).waits_for == first.waits_for  # type: ignore[union-attr]
        assert drivers.runs() == 2
        sub_run = first.waits_for["runId"]
        assert drivers.until_ended(sub_run) == "SUCCESS"
        assert bench.artifact("chain", {"chain": "sub"}) == {"runId": sub_run, "artifacts": {"x": {"message": ""}}}

    def test_an_attempt_that_no_longer_counts_starts_nothing(self, engine: Engine) -> None:
        bench, drivers = self.bench(engine), Drivers(engine)
        drivers.chain("sub", {"id": "x", "type": "print"})
        bench.set_node(status="SUCCESS")
        with pytest.raises(NodeStopped):
            bench.perform("chain", {"chain": "sub"})
        assert drivers.runs() == 1

    def test_a_chain_that_cannot_be_started_says_why(self, engine: Engine) -> None:
        bench, drivers = self.bench(engine), Drivers(engine)
        with pytest.raises(NodeFailed, match="the chain sub cannot be started: chain not found"):
            bench.perform("chain", {"chain": "sub"})
        set_chain_enabled(engine, drivers.chain("sub", {"id": "x", "type": "print"}), False, actor="ann")
        with pytest.raises(NodeFailed, match="chain is disabled"):
            bench.perform("chain", {"chain": "sub"})

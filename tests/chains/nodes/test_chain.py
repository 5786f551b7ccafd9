"""The node type `chain`: sub-runs that real drivers execute, nested, failed, retried and stopped."""

import threading
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, update

from platform_defs.chains.definitions import set_chain_enabled
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeFailed, NodeStopped, Waiting
from platform_defs.chains.runs.operations import retry_node, stop_run
from platform_defs.chains.runs.starting import start_sub_run
from platform_defs.store.tables.chains import job_run, job_run_node
from tests.chains.nodes.attempts import Bench
from tests.chains.nodes.drivers import Drivers, calling

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_servers_too = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True
)


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

    def test_a_node_that_is_completed_in_the_moment_of_the_start_starts_nothing(self, engine: Engine) -> None:
        def start_late(connection: Connection, *names: Any, **values: Any) -> str:
            complete = update(job_run_node).where(job_run_node.c.run_id == bench.run_id).values(status="SUCCESS")
            connection.execute(complete)
            return start_sub_run(connection, *names, **values)

        drivers = Drivers(engine)
        bench = Bench(engine, node_types(environment=NodeEnvironment(engine, start_sub_run=start_late)))
        bench.begin()
        drivers.chain("sub", {"id": "x", "type": "print"})
        with pytest.raises(NodeStopped, match="no longer counts"):
            bench.perform("chain", {"chain": "sub"})
        assert drivers.runs() == 1

    def test_a_chain_that_cannot_be_started_says_why(self, engine: Engine) -> None:
        bench, drivers = self.bench(engine), Drivers(engine)
        with pytest.raises(NodeFailed, match="the chain sub cannot be started: chain not found"):
            bench.perform("chain", {"chain": "sub"})
        set_chain_enabled(engine, drivers.chain("sub", {"id": "x", "type": "print"}), False, actor="ann")
        with pytest.raises(NodeFailed, match="chain is disabled"):
            bench.perform("chain", {"chain": "sub"})

"""Starts, stops, retries and completes over rows that a drive left behind."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, update

from platform_defs.chains import definitions as chains
from platform_defs.chains import job_definitions as jobs
from platform_defs.chains.errors import Conflict, InvalidChain, Unknown
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.request_keys import RequestKey
from platform_defs.chains.runs import operations
from platform_defs.chains.runs.queries import list_drives, list_nodes, list_runs
from platform_defs.chains.runs.starting import start_chain, start_job, start_sub_run
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run_checkpoint
from platform_defs.store.tables.work import work
from platform_defs.work import leases
from tests.chains.making import (
    ACTOR,
    DIAMOND,
    audit_rows,
    dag,
    make_chain,
    node,
    node_rows,
    put,
    run_row,
    start,
    statuses,
)

FAILED, RUNNING, STOPPED, SUCCESS = NodeStatus.FAILED, NodeStatus.RUNNING, NodeStatus.STOPPED, NodeStatus.SUCCESS
PENDING, SKIPPED, RETRYING = NodeStatus.PENDING, NodeStatus.SKIPPED, NodeStatus.RETRYING


def work_rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(work).order_by(work.c.id)))


def close_work(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(update(work).values(status="SUCCEEDED"))


def failed_run(engine: Engine, types: NodeTypes) -> str:
    """A DIAMOND whose b failed: c is done, d was skipped, and the drive is over."""
    run_id = start(engine, make_chain(engine, types, DIAMOND))
    put(engine, run_id, RunStatus.FAILED, a=SUCCESS, b=FAILED, c=SUCCESS, d=SKIPPED)
    close_work(engine)
    return run_id


def retry(engine: Engine, run_id: str, node_id: str, **fields: Any) -> operations.NodeState:
    return operations.retry_node(engine, run_id, node_id, actor=ACTOR, **fields)


def complete(engine: Engine, run_id: str, node_id: str, **fields: Any) -> operations.NodeState:
    return operations.complete_node(engine, run_id, node_id, actor=ACTOR, **fields)


def stop(engine: Engine, run_id: str) -> RunStatus:
    return operations.stop_run(engine, run_id, actor=ACTOR)


# -- start ----------------------------------------------------------------------------------------------------------


def test_a_start_writes_run_nodes_drive_and_work_at_once(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    run_id = start(engine, chain, params={"day": "20251219"})
    run = run_row(engine, run_id)
    assert (run.status, run.chain_id, run.chain_version, run.job_name) == ("PENDING", chain.chain_id, 1, "nightly")
    assert (run.params, run.actor, run.trigger_text, run.drive_no) == ({"day": "20251219"}, ACTOR, "test", 1)
    retry_of_a = run.dag_json["nodes"][0]["retry"]
    assert retry_of_a == {"maxAttempts": 1, "backoffMillis": 1000, "backoffMultiplier": 2.0}
    assert statuses(engine, run_id) == {"a": PENDING, "b": PENDING, "c": PENDING}
    (row,), (drive,) = work_rows(engine), list_drives(engine, run_id)
    assert (row.kind, row.payload, row.status) == ("chain_run", {"run_id": run_id, "drive_no": 1}, "QUEUED")
    assert (drive.work_id, drive.dagster_run_id, drive.reason) == (row.id, row.run_id, "start")
    assert audit_rows(engine)[-1].action == "run.start"


def test_a_run_keeps_the_dag_that_it_was_started_with(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    first = start(engine, chain)
    chains.update_chain(
        engine, types, chain.chain_id, name="n", description=None, dag_json=DIAMOND, version=1, actor=ACTOR
    )
    second = start(engine, chain)
    assert len(run_row(engine, first).dag_json["nodes"]) == 3
    assert len(run_row(engine, second).dag_json["nodes"]) == 4
    assert (run_row(engine, second).chain_version, len(node_rows(engine, second))) == (2, 4)
    assert [row.run_id for row in list_runs(engine, chain_id=chain.chain_id)] == [second, first]


def test_a_disabled_or_unknown_chain_and_bad_params_start_nothing(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    with pytest.raises(Unknown, match="chain not found"):
        start_chain(engine, "nobody", actor=ACTOR, trigger="test")
    with pytest.raises(InvalidChain, match="params: expected an object"):
        start(engine, chain, params=[1])
    with pytest.raises(InvalidChain, match="params: expected at most 1048576 bytes of JSON"):
        start(engine, chain, params={"x": "y" * 2**20})
    chains.set_chain_enabled(engine, chain.chain_id, False, actor=ACTOR)
    with pytest.raises(Conflict, match=r"^chain is disabled$") as refused:
        start(engine, chain)
    assert refused.value.code == "CHAIN_DISABLED"
    assert work_rows(engine) == []


def test_jobs_are_resolved_into_the_snapshot(engine: Engine, types: NodeTypes) -> None:
    fields = {"name": "hello", "description": None, "type_name": "print"}
    job = jobs.create_job(engine, types, **fields, config_json={"message": "hi"}, actor=ACTOR)
    chain = make_chain(engine, types, dag({"id": "a", "jobId": job.job_id}))
    first = start(engine, chain)
    jobs.update_job(engine, types, job.job_id, **fields, config_json={"message": "ho"}, version=1, actor=ACTOR)
    second = start(engine, chain)
    for run_id, message in ((first, "hi"), (second, "ho")):
        (resolved,) = run_row(engine, run_id).dag_json["nodes"]
        assert (resolved["type"], resolved["cfg"], resolved["jobId"]) == ("print", {"message": message}, job.job_id)
    alone = start_job(engine, job.job_id, actor=ACTOR, trigger="test").run_id
    assert (run_row(engine, alone).job_id, run_row(engine, alone).job_name) == (job.job_id, "hello")
    assert statuses(engine, alone) == {"job": PENDING}
    jobs.set_job_enabled(engine, job.job_id, False, actor=ACTOR)
    with pytest.raises(Conflict, match=f"node a: job {job.job_id} is disabled") as refused:
        start(engine, chain)
    assert refused.value.code == "JOB_UNAVAILABLE"
    with pytest.raises(Conflict, match="job is disabled"):
        start_job(engine, job.job_id, actor=ACTOR, trigger="test")
    missing = make_chain(engine, types, dag({"id": "a", "jobId": "gone"}), name="missing")
    with pytest.raises(Conflict, match="node a: job gone does not exist"):
        start(engine, missing)


def test_fifty_starts_with_one_key_make_one_run(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    key = RequestKey(f"key:all start {chain.chain_id}", "k", "a" * 64)
    with ThreadPoolExecutor(10) as pool:
        run_ids = set(pool.map(lambda _: start(engine, chain, request_key=key), range(50)))
    assert len(run_ids) == len(work_rows(engine)) == len(list_runs(engine)) == 1
    chains.set_chain_enabled(engine, chain.chain_id, False, actor=ACTOR)
    assert start(engine, chain, request_key=key) in run_ids
    with pytest.raises(Conflict, match="another body"):
        start(engine, chain, request_key=RequestKey(key.scope, "k", "b" * 64))


# -- stop -----------------------------------------------------------------------------------------------------------


def test_a_run_that_no_process_has_taken_is_stopped_at_once(engine: Engine, types: NodeTypes) -> None:
    run_id = start(engine, make_chain(engine, types))
    assert stop(engine, run_id) is RunStatus.STOPPING
    run = run_row(engine, run_id)
    assert (run.status, run.stop_requested_by) == ("STOPPED", ACTOR)
    assert run.ended_at is not None
    assert statuses(engine, run_id) == {"a": STOPPED, "b": SKIPPED, "c": SKIPPED}
    assert node_rows(engine, run_id)["a"].last_error == "the run was stopped by tester"
    assert [row.status for row in work_rows(engine)] == ["CANCELED"]
    assert leases.claim(engine, "runner", 5) == []
    audited = len(audit_rows(engine))
    assert stop(engine, run_id) is RunStatus.STOPPED
    assert len(audit_rows(engine)) == audited


def test_a_run_with_a_process_is_asked_to_stop(engine: Engine, types: NodeTypes) -> None:
    run_id = start(engine, make_chain(engine, types))
    leases.claim(engine, "runner", 1)
    put(engine, run_id, RunStatus.RUNNING, a=RUNNING)
    before = run_row(engine, run_id).operation_no
    assert stop(engine, run_id) is RunStatus.STOPPING
    assert stop(engine, run_id) is RunStatus.STOPPING
    assert (run_row(engine, run_id).status, run_row(engine, run_id).operation_no) == ("STOPPING", before + 1)
    assert statuses(engine, run_id)["a"] == RUNNING
    for act in (retry, complete):
        with pytest.raises(Conflict, match="run is being stopped") as refused:
            act(engine, run_id, "a")
        assert refused.value.code == "RUN_STOPPING"


def test_a_run_that_gave_its_slot_back_is_stopped_at_once_and_its_dagster_run_soon(
    engine: Engine, types: NodeTypes
) -> None:
    run_id = start(engine, make_chain(engine, types))
    (taken,) = leases.claim(engine, "runner", 1)
    put(engine, run_id, RunStatus.RUNNING, a=RETRYING)
    with engine.begin() as connection:
        later = taken.created_at.replace(year=taken.created_at.year + 1)
        connection.execute(update(work).values(status="QUEUED", not_before=later))
    assert leases.claim(engine, "runner", 1) == []
    assert stop(engine, run_id) is RunStatus.STOPPING
    assert run_row(engine, run_id).status == "STOPPED"
    assert statuses(engine, run_id) == {"a": STOPPED, "b": SKIPPED, "c": SKIPPED}
    assert len(leases.claim(engine, "runner", 1)) == 1


@pytest.mark.parametrize("ended", [RunStatus.SUCCESS, RunStatus.FAILED])
def test_an_ended_run_cannot_be_stopped(engine: Engine, types: NodeTypes, ended: RunStatus) -> None:
    run_id = start(engine, make_chain(engine, types))
    put(engine, run_id, ended)
    with pytest.raises(Conflict, match=f"run has already ended: {ended}"):
        stop(engine, run_id)
    with pytest.raises(Unknown, match="run not found: nobody"):
        stop(engine, "nobody")


def test_a_stop_reaches_the_runs_below(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    top = start(engine, chain)
    put(engine, top, RunStatus.RUNNING, a=RUNNING)
    middle = transact(engine, lambda connection: sub_run(connection, "nightly", top, 1))
    put(engine, middle, RunStatus.RUNNING)
    below = transact(engine, lambda connection: sub_run(connection, chain.chain_id, middle, 2))
    assert (run_row(engine, below).depth, run_row(engine, below).parent_run_id) == (2, middle)
    with pytest.raises(Conflict, match="at most 10 deep"):
        transact(engine, lambda connection: sub_run(connection, "nightly", middle, 11))
    stop(engine, top)
    assert [run_row(engine, run_id).status for run_id in (top, middle, below)] == ["STOPPED"] * 3
    with pytest.raises(Conflict, match="not running any more"):
        transact(engine, lambda connection: sub_run(connection, "nightly", middle, 2))


def sub_run(connection: Any, chain: str, above: str, depth: int) -> str:
    return start_sub_run(connection, chain, actor=ACTOR, parent_run_id=above, parent_node_id="a", depth=depth)


# -- retry ----------------------------------------------------------------------------------------------------------


def test_a_retry_brings_back_the_run_and_what_was_skipped(engine: Engine, types: NodeTypes) -> None:
    run_id = failed_run(engine, types)
    done = retry(engine, run_id, "b", reason="the disk is free again")
    assert (done.status, done.attempt) == (RETRYING, 2)
    assert statuses(engine, run_id) == {"a": SUCCESS, "b": RETRYING, "c": SUCCESS, "d": PENDING}
    b = node_rows(engine, run_id)["b"]
    assert (b.tries, b.deaths) == (0, 0)
    (operation,) = b.operations
    assert (operation["action"], operation["actor"], operation["from"]) == ("retry", ACTOR, "FAILED")
    assert operation["reason"] == "the disk is free again"
    assert (run_row(engine, run_id).status, run_row(engine, run_id).drive_no) == ("RUNNING", 2)
    assert [row.reason for row in list_drives(engine, run_id)] == ["start", "retry"]
    assert [row.status for row in work_rows(engine)] == ["SUCCEEDED", "QUEUED"]
    audit = audit_rows(engine)[-1]
    assert (audit.action, audit.node_id, audit.reason) == ("node.retry", "b", "the disk is free again")
    with pytest.raises(Conflict, match="expected FAILED or STOPPED, got RETRYING"):
        retry(engine, run_id, "b")


def test_of_many_retries_in_the_same_moment_one_counts(engine: Engine, types: NodeTypes) -> None:
    run_id = failed_run(engine, types)

    def attempt(_: int) -> int:
        try:
            return retry(engine, run_id, "b").attempt
        except Conflict:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [0] * 7 + [2]
    assert len(list_drives(engine, run_id)) == 2


def test_a_retry_while_the_run_runs_only_tells_its_drive(engine: Engine, types: NodeTypes) -> None:
    run_id = start(engine, make_chain(engine, types, DIAMOND))
    leases.claim(engine, "runner", 1)
    put(engine, run_id, RunStatus.RUNNING, a=SUCCESS, b=FAILED, c=RUNNING, d=SKIPPED)
    before = run_row(engine, run_id).operation_no
    retry(engine, run_id, "b")
    assert (run_row(engine, run_id).operation_no, len(list_drives(engine, run_id))) == (before + 1, 1)
    assert statuses(engine, run_id)["d"] == PENDING


def test_a_retry_sees_its_checkpoint_unless_it_is_cleared(engine: Engine, types: NodeTypes) -> None:
    run_id = failed_run(engine, types)
    with engine.begin() as connection:
        for name in ("b", "c"):
            row = {"run_id": run_id, "node_id": name, "checkpoint_json": {"page": 7}}
            connection.execute(insert(job_run_checkpoint).values(row))

    def kept() -> list[str]:
        with engine.connect() as connection:
            found = connection.execute(select(job_run_checkpoint.c.node_id).order_by(job_run_checkpoint.c.node_id))
            return list(found.scalars())

    retry(engine, run_id, "b")
    assert kept() == ["b", "c"]
    put(engine, run_id, b=FAILED)
    retry(engine, run_id, "b", clear_checkpoint=True)
    assert kept() == ["c"]


@pytest.mark.parametrize("status", [PENDING, RUNNING, SUCCESS, RETRYING, SKIPPED])
def test_only_what_failed_or_was_stopped_can_be_retried(engine: Engine, types: NodeTypes, status: NodeStatus) -> None:
    run_id = start(engine, make_chain(engine, types))
    put(engine, run_id, RunStatus.RUNNING, a=status)
    with pytest.raises(Conflict, match=f"expected FAILED or STOPPED, got {status}") as refused:
        retry(engine, run_id, "a")
    assert refused.value.code == "NODE_NOT_RETRYABLE"


# -- complete -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [FAILED, STOPPED, RUNNING, RETRYING])
def test_a_completed_node_lets_the_run_go_on(engine: Engine, types: NodeTypes, status: NodeStatus) -> None:
    run_id = start(engine, make_chain(engine, types))
    put(engine, run_id, RunStatus.RUNNING, a=status, b=SKIPPED, c=SKIPPED)
    close_work(engine)
    done = complete(engine, run_id, "a", artifact={"rows": 3}, reason="loaded by hand")
    assert (done.status, done.attempt, done.changed) == (SUCCESS, 1, True)
    a = node_rows(engine, run_id)["a"]
    assert (a.status, a.attempt, a.artifact_json) == (SUCCESS, 1, {"rows": 3})
    assert (a.operations[0]["from"], a.operations[0]["reason"]) == (status, "loaded by hand")
    assert a.ended_at is not None
    assert statuses(engine, run_id) == {"a": SUCCESS, "b": PENDING, "c": PENDING}
    assert (run_row(engine, run_id).status, len(list_drives(engine, run_id))) == ("RUNNING", 2)


def test_the_last_node_that_is_completed_ends_the_run(engine: Engine, types: NodeTypes) -> None:
    run_id = start(engine, make_chain(engine, types, dag(node("a"), node("b"))))
    put(engine, run_id, RunStatus.FAILED, a=SUCCESS, b=FAILED)
    close_work(engine)
    complete(engine, run_id, "b")
    assert (run_row(engine, run_id).status, len(list_drives(engine, run_id))) == ("SUCCESS", 1)


def test_what_succeeded_stays_as_it_is(engine: Engine, types: NodeTypes) -> None:
    run_id = failed_run(engine, types)
    before, audited = node_rows(engine, run_id)["a"], len(audit_rows(engine))
    done = complete(engine, run_id, "a", artifact={"other": 1})
    assert (done.status, done.changed) == (SUCCESS, False)
    assert node_rows(engine, run_id)["a"] == before
    assert (run_row(engine, run_id).status, len(audit_rows(engine))) == ("FAILED", audited)


@pytest.mark.parametrize("status", [PENDING, SKIPPED])
def test_what_has_not_begun_cannot_be_completed(engine: Engine, types: NodeTypes, status: NodeStatus) -> None:
    run_id = start(engine, make_chain(engine, types))
    put(engine, run_id, RunStatus.RUNNING, b=status)
    with pytest.raises(Conflict, match="node b cannot complete: expected FAILED or RETRYING or RUNNING or STOPPED"):
        complete(engine, run_id, "b")


def test_unknown_nodes_and_large_artifacts_are_refused(engine: Engine, types: NodeTypes) -> None:
    run_id = failed_run(engine, types)
    for act in (retry, complete):
        with pytest.raises(Unknown, match="node not found: x"):
            act(engine, run_id, "x")
        with pytest.raises(Unknown, match="run not found: nobody"):
            act(engine, "nobody", "x")
    with pytest.raises(InvalidChain, match="artifactJson: expected at most 1048576 bytes"):
        complete(engine, run_id, "b", artifact="x" * 2**20)
    assert [row.node_id for row in list_nodes(engine, run_id)] == ["a", "b", "c", "d"]
    with pytest.raises(Unknown, match="run not found"):
        list_nodes(engine, "nobody")

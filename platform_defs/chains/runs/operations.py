"""What people do to runs: stop a run, retry a node, complete a node by hand. Each resumes whatever it unblocks.

Every operation locks the run, changes rows by conditional updates, raises `operation_no` so that the process that
drives the run reads the nodes again, and writes the audit, all in one transaction. The caller wakes the runner.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update

from platform_defs.chains import audit
from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.errors import Conflict, InvalidChain, Unknown
from platform_defs.chains.json_values import json_problem
from platform_defs.chains.nodes import checkpoints
from platform_defs.chains.runs.drives import begin_drive, lock_run, open_drive
from platform_defs.chains.runs.whole_run import end_run, node_statuses, skip_and_revive, stop_nodes
from platform_defs.chains.states import COMPLETABLE, RETRYABLE, NodeStatus, RunStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run, job_run_node
from platform_defs.store.tables.work import work
from platform_defs.work import rows
from platform_defs.work.rows import Status


@dataclass(frozen=True)
class NodeState:
    """A node after an operation; `changed` is False if it was already as asked for."""

    run_id: str
    node_id: str
    status: NodeStatus
    attempt: int
    changed: bool = True


# -- stop -----------------------------------------------------------------------------------------------------------


def stop_run(engine: Engine, run_id: str, *, actor: str, reason: str | None = None) -> RunStatus:
    """Asks a run to stop, with the runs that its nodes started; STOPPING, or STOPPED if it had been stopped before.

    A run that no process drives is STOPPED when this returns. Otherwise its process ends what runs.
    """

    def work_(connection: Connection) -> RunStatus:
        run = lock_run(connection, run_id)
        if run is None:
            raise unknown_run(run_id)
        status = RunStatus(run.status)
        if status in (RunStatus.STOPPING, RunStatus.STOPPED):
            return status
        if status.is_ended:
            raise Conflict(f"run has already ended: {status}", code="RUN_ENDED")
        stop_locked(connection, run, actor=actor, reason=reason)
        return RunStatus.STOPPING

    return transact(engine, work_)


def stop_locked(connection: Connection, run: Row[Any], *, actor: str, reason: str | None) -> None:
    """Stops a run that the caller has locked and that has not ended."""
    now = datetime.now(UTC)
    values = {
        "status": RunStatus.STOPPING,
        "stop_requested_by": actor,
        "operation_no": job_run.c.operation_no + 1,
    }
    connection.execute(update(job_run).where(job_run.c.run_id == run.run_id).values(values))
    drive = open_drive(connection, run.run_id)
    if drive is None or _is_without_process(connection, drive.work_id, actor, now):
        dag = parse_snapshot(run.dag_json)
        statuses = node_statuses(connection, run.run_id)
        stop_nodes(connection, run.run_id, dag, statuses, reason=stop_text(actor), at=now)
        end_run(connection, run.run_id, RunStatus.STOPPED, at=now)
    audit.record(
        connection,
        actor=actor,
        action="run.stop",
        object_id=run.run_id,
        before={"status": run.status},
        after={"status": RunStatus.STOPPING},
        reason=reason,
    )
    stop_sub_runs(connection, run.run_id, None, actor=actor, reason=f"run {run.run_id} was stopped")


def stop_text(actor: str) -> str:
    """The last_error of a node that a stop ended."""
    return f"the run was stopped by {actor}"


def _is_without_process(connection: Connection, work_id: int, actor: str, now: datetime) -> bool:
    """Whether the row of a drive waits in the queue; then it is locked, so that no runner takes it meanwhile.

    A row that was never taken is taken back. A drive that gave its slot back has a Dagster run, which its process ends
    as soon as it has a slot: the run itself need not wait for that.
    """
    queued = (work.c.id == work_id) & (work.c.status == Status.QUEUED)
    attempts = connection.execute(select(work.c.attempts).where(queued).with_for_update()).scalar_one_or_none()
    if attempts is None:
        return False
    if attempts:
        rows.hurry(connection, [work_id])
    else:
        values = {"status": Status.CANCELED, "finished_at": now, "error": stop_text(actor)}
        connection.execute(update(work).where(queued).values(values))
    return True


def stop_sub_runs(connection: Connection, run_id: str, node_id: str | None, *, actor: str, reason: str | None) -> None:
    """Stops the runs that nodes of this run started, or one node of it, and that are not over."""
    going = [RunStatus.PENDING, RunStatus.RUNNING]
    query = select(job_run.c.run_id).where(job_run.c.parent_run_id == run_id, job_run.c.status.in_(going))
    if node_id is not None:
        query = query.where(job_run.c.parent_node_id == node_id)
    for sub_run_id in connection.execute(query).scalars().all():
        sub_run = lock_run(connection, sub_run_id)
        if sub_run is not None and sub_run.status in going:
            stop_locked(connection, sub_run, actor=actor, reason=reason)


# -- retry and complete ---------------------------------------------------------------------------------------------


def retry_node(
    engine: Engine,
    run_id: str,
    node_id: str,
    *,
    actor: str,
    reason: str | None = None,
    artifact: Any = None,
    clear_checkpoint: bool = False,
) -> NodeState:
    """Has a FAILED or STOPPED node executed again, and then what it unblocks. Its automatic retries begin anew."""
    entry = _operation("retry", actor, reason)
    _check_artifact(artifact)

    def work_(connection: Connection) -> NodeState:
        run, node = _lock_node(connection, run_id, node_id)
        if _is_last_operation(node, entry):
            return NodeState(run_id, node_id, NodeStatus(node.status), node.attempt)
        _refuse_while_stopping(run)
        if node.status not in RETRYABLE:
            raise _refused(node, "retry", RETRYABLE, "NODE_NOT_RETRYABLE")
        values: dict[str, Any] = {
            "status": NodeStatus.RETRYING,
            "attempt": node.attempt + 1,
            "tries": 0,
            "deaths": 0,
            "next_try_at": datetime.now(UTC),
            "waits_for": None,
        }
        if artifact is not None:
            values["artifact_json"] = artifact
        if clear_checkpoint:
            checkpoints.clear_checkpoint(connection, run_id, node_id)
        _write_operation(connection, run, node, values, entry, extra={"clearCheckpoint": clear_checkpoint})
        _go_on(connection, run, "retry")
        return NodeState(run_id, node_id, NodeStatus.RETRYING, node.attempt + 1)

    return transact(engine, work_)


def complete_node(
    engine: Engine, run_id: str, node_id: str, *, actor: str, reason: str | None = None, artifact: Any = None
) -> NodeState:
    """Marks a node as SUCCESS by hand and goes on below it. An attempt that still runs is ended, its result discarded.

    A node that has succeeded stays as it is.
    """
    entry = _operation("complete", actor, reason)
    _check_artifact(artifact)

    def work_(connection: Connection) -> NodeState:
        run, node = _lock_node(connection, run_id, node_id)
        if _is_last_operation(node, entry):
            return NodeState(run_id, node_id, NodeStatus(node.status), node.attempt)
        _refuse_while_stopping(run)
        if node.status == NodeStatus.SUCCESS:
            return NodeState(run_id, node_id, NodeStatus.SUCCESS, node.attempt, changed=False)
        if node.status not in COMPLETABLE:
            raise _refused(node, "complete", COMPLETABLE, "NODE_NOT_COMPLETABLE")
        values: dict[str, Any] = {
            "status": NodeStatus.SUCCESS,
            "ended_at": datetime.now(UTC),
            "next_try_at": None,
            "waits_for": None,
        }
        if artifact is not None:
            values["artifact_json"] = artifact
        _write_operation(connection, run, node, values, entry)
        stop_sub_runs(connection, run_id, node_id, actor=actor, reason=f"node {node_id} was completed by hand")
        _go_on(connection, run, "complete")
        return NodeState(run_id, node_id, NodeStatus.SUCCESS, node.attempt)

    return transact(engine, work_)


def unknown_run(run_id: str) -> Unknown:
    return Unknown(f"run not found: {run_id}", code="RUN_NOT_FOUND")


def _lock_node(connection: Connection, run_id: str, node_id: str) -> tuple[Row[Any], Row[Any]]:
    """The run and its node, both locked: a result of the attempt that runs comes before this operation or after it."""
    run = lock_run(connection, run_id)
    if run is None:
        raise unknown_run(run_id)
    of_node = (job_run_node.c.run_id == run_id) & (job_run_node.c.node_id == node_id)
    node = connection.execute(select(job_run_node).where(of_node).with_for_update()).one_or_none()
    if node is None:
        raise Unknown(f"node not found: {node_id} of run {run_id}", code="NODE_NOT_FOUND")
    return run, node


def _refuse_while_stopping(run: Row[Any]) -> None:
    if run.status == RunStatus.STOPPING:
        raise Conflict("run is being stopped; try again when it is STOPPED", code="RUN_STOPPING")


def _refused(node: Row[Any], verb: str, allowed: frozenset[NodeStatus], code: str) -> Conflict:
    expected = " or ".join(sorted(allowed))
    return Conflict(f"node {node.node_id} cannot {verb}: expected {expected}, got {node.status}", code=code)


def _check_artifact(artifact: Any) -> None:
    problem = None if artifact is None else json_problem(artifact)
    if problem is not None:
        raise InvalidChain([f"artifactJson: {problem}"], code="ARTIFACT_INVALID")


def _operation(action: str, actor: str, reason: str | None) -> dict[str, Any]:
    """What the node keeps for ever of an operation. Its time tells a repeated transaction from a second request."""
    return {"action": action, "actor": actor, "at": datetime.now(UTC).isoformat(), "reason": reason}


def _is_last_operation(node: Row[Any], entry: Mapping[str, Any]) -> bool:
    """Whether an earlier try of this very transaction was committed although its answer was lost."""
    last = (node.operations or [None])[-1]
    return last is not None and all(last.get(name) == value for name, value in entry.items())


def _write_operation(
    connection: Connection,
    run: Row[Any],
    node: Row[Any],
    values: Mapping[str, Any],
    entry: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Changes the node of a locked run, tells the drive by `operation_no`, and writes the audit."""
    of_node = (job_run_node.c.run_id == node.run_id) & (job_run_node.c.node_id == node.node_id)
    operations = [*(node.operations or []), {**entry, "from": node.status}]
    changed = update(job_run_node).where(of_node, job_run_node.c.status == node.status)
    connection.execute(changed.values({**values, "operations": operations}))
    raised = {"operation_no": job_run.c.operation_no + 1}
    connection.execute(update(job_run).where(job_run.c.run_id == run.run_id).values(raised))
    audit.record(
        connection,
        actor=entry["actor"],
        action=f"node.{entry['action']}",
        object_id=node.run_id,
        node_id=node.node_id,
        before={
            "status": node.status,
            "attempt": node.attempt,
            "artifactJson": node.artifact_json,
            "lastError": node.last_error,
            "endedAt": _iso(node.ended_at),
            "run": {"status": run.status, "endedAt": _iso(run.ended_at), "error": run.error},
        },
        after={
            "status": values["status"],
            "attempt": values.get("attempt", node.attempt),
            "artifactJson": values.get("artifact_json", node.artifact_json),
            **(extra or {}),
        },
        reason=entry["reason"],
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _go_on(connection: Connection, run: Row[Any], reason: str) -> None:
    """Brings back what the operation unblocked, and makes sure that somebody drives the run, or that it ends."""
    dag = parse_snapshot(run.dag_json)
    steps, _ = skip_and_revive(connection, run.run_id, dag, node_statuses(connection, run.run_id))
    if not RunStatus(run.status).is_ended:
        drive = open_drive(connection, run.run_id)
        if drive is not None:
            rows.hurry(connection, [drive.work_id])
            return
    if steps.outcome is not None:
        end_run(connection, run.run_id, steps.outcome, at=datetime.now(UTC))
        return
    running = {"status": RunStatus.RUNNING, "ended_at": None, "error": None, "stop_requested_by": None}
    connection.execute(update(job_run).where(job_run.c.run_id == run.run_id).values(running))
    # The row of work of the drive that ended the run may still be open, but that drive looks at no node any more.
    begin_drive(connection, run, reason)

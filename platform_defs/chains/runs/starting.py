"""Starts runs: a run, its nodes, its first drive and its row of work are written in one transaction."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from platform_defs.chains import audit
from platform_defs.chains.dag import RetryPolicy
from platform_defs.chains.definitions import Chain, find_by_id_or_name, find_chain
from platform_defs.chains.errors import Conflict, InvalidChain
from platform_defs.chains.job_definitions import find_job, find_jobs
from platform_defs.chains.json_values import MEBIBYTE, json_problem
from platform_defs.chains.request_keys import RequestKey, claim_key
from platform_defs.chains.runs.drives import STARTED, Drive, begin_drive, lock_run
from platform_defs.chains.states import RunStatus
from platform_defs.chains.validation import MAX_JOB_NAME, read_dag
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run, job_run_node

# How deep runs may be nested: a chain that starts itself would never end.
MAX_DEPTH = 10
# Of a snapshot, in which the same job may be resolved for many nodes.
MAX_SNAPSHOT_BYTES = 8 * MEBIBYTE
# The node of a run that was started from a job alone.
JOB_NODE = "job"


@dataclass(frozen=True)
class StartedRun:
    """`drive` is None if an earlier request with the same key had started the run."""

    run_id: str
    drive: Drive | None


@dataclass(frozen=True)
class NewRun:
    """What a run is started with. `trigger` says what started it: api, cli, ui, a schedule, a table, a node."""

    job_name: str
    snapshot: Mapping[str, Any]
    params: Mapping[str, Any]
    actor: str
    trigger: str
    chain_id: str | None = None
    chain_version: int | None = None
    job_id: str | None = None
    parent_run_id: str | None = None
    parent_node_id: str | None = None
    depth: int = 0


def start_chain(
    engine: Engine,
    chain_id: str,
    *,
    params: Mapping[str, Any] | None = None,
    actor: str,
    trigger: str,
    request_key: RequestKey | None = None,
    run_id: str | None = None,
    dagster_run_id: str | None = None,
) -> StartedRun:
    """A run of the chain as it is now. The caller wakes the runner. A run id that exists already is started once.

    `dagster_run_id` is that of a Dagster run which executes it already, because somebody launched the chain's job.
    """
    checked = check_params(params)

    def prepare(connection: Connection) -> NewRun:
        return _run_of_chain(connection, find_chain(connection, chain_id), checked, actor=actor, trigger=trigger)

    return _start_once(engine, run_id or str(uuid.uuid4()), prepare, request_key, dagster_run_id)


def start_job(
    engine: Engine,
    job_id: str,
    *,
    params: Mapping[str, Any] | None = None,
    actor: str,
    trigger: str,
    request_key: RequestKey | None = None,
) -> StartedRun:
    """A run of one node that does what the job says."""
    checked = check_params(params)

    def prepare(connection: Connection) -> NewRun:
        job = find_job(connection, job_id)
        if not job.enabled:
            raise Conflict("job is disabled", code="JOB_DISABLED")
        snapshot = resolve(connection, {"job": job.name, "nodes": [{"id": JOB_NODE, "jobId": job_id}]}, job.name)
        return NewRun(job.name, snapshot, checked, actor, trigger, job_id=job_id)

    return _start_once(engine, str(uuid.uuid4()), prepare, request_key)


def start_sub_run(
    connection: Connection,
    chain_id_or_name: str,
    *,
    params: Mapping[str, Any] | None = None,
    actor: str,
    parent_run_id: str,
    parent_node_id: str,
    depth: int,
    run_id: str | None = None,
) -> str:
    """A run of a chain for a node of another run, in the caller's transaction; returns the id of the new run.

    `depth` is that of the new run. With the `run_id` of a sub-run that exists already, that one is returned. Refused
    while the run above is stopped: whoever stops it has seen only the sub-runs that existed then.
    """
    if depth > MAX_DEPTH:
        raise Conflict(f"expected chains nested at most {MAX_DEPTH} deep; does one start itself?", code="TOO_DEEP")
    above = lock_run(connection, parent_run_id)
    if above is None or above.status != RunStatus.RUNNING:
        raise Conflict("the run above is not running any more", code="RUN_STOPPING")
    chosen = run_id or str(uuid.uuid4())
    if _exists(connection, chosen):
        return chosen
    chain = find_by_id_or_name(connection, chain_id_or_name)
    new = _run_of_chain(
        connection,
        chain,
        check_params(params),
        actor=actor,
        trigger=f"node {parent_node_id} of run {parent_run_id}"[:255],
        parent_run_id=parent_run_id,
        parent_node_id=parent_node_id,
        depth=depth,
    )
    write_run(connection, chosen, new)
    return chosen


def write_run(connection: Connection, run_id: str, new: NewRun, dagster_run_id: str | None = None) -> Drive:
    """Writes the run, its nodes, its first drive and the audit."""
    values = {
        "run_id": run_id,
        "chain_id": new.chain_id,
        "job_id": new.job_id,
        "job_name": new.job_name,
        "status": RunStatus.PENDING,
        "dag_json": new.snapshot,
        "chain_version": new.chain_version,
        "params": new.params,
        "actor": new.actor,
        "trigger_text": new.trigger,
        "parent_run_id": new.parent_run_id,
        "parent_node_id": new.parent_node_id,
        "depth": new.depth,
    }
    connection.execute(insert(job_run).values(values))
    nodes = [{"run_id": run_id, "node_id": node["id"]} for node in new.snapshot["nodes"]]
    connection.execute(insert(job_run_node), nodes)
    row = connection.execute(select(job_run).where(job_run.c.run_id == run_id)).one()
    drive = begin_drive(connection, row, STARTED, dagster_run_id=dagster_run_id)
    after = {"chainId": new.chain_id, "jobId": new.job_id, "version": new.chain_version, "trigger": new.trigger}
    audit.record(
        connection, actor=new.actor, action="run.start", object_id=run_id, after={**after, "params": new.params}
    )
    return drive


def check_params(params: Any) -> dict[str, Any]:
    """The params of a run: an object of at most 1 MiB."""
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InvalidChain(["params: expected an object"], code="PARAMS_INVALID")
    checked = dict(params)
    problem = json_problem(checked)
    if problem is not None:
        raise InvalidChain([f"params: {problem}"], code="PARAMS_INVALID")
    return checked


def resolve(connection: Connection, dag_json: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The snapshot of a DAG: jobs are replaced by their type and cfg, and defaults are filled in."""
    nodes = dag_json["nodes"]
    jobs = find_jobs(connection, {node["jobId"] for node in nodes if node.get("jobId")})
    unavailable = []
    for node in nodes:
        job = jobs.get(node.get("jobId"))
        if node.get("jobId") and (job is None or not job.enabled):
            state = "does not exist" if job is None else "is disabled"
            unavailable.append(f"node {node['id']}: job {node['jobId']} {state}")
    if unavailable:
        raise Conflict("; ".join(unavailable), code="JOB_UNAVAILABLE")
    resolved = []
    for node in nodes:
        job = jobs.get(node.get("jobId"))
        action = {"type": node.get("type"), "cfg": node.get("cfg") or {}}
        if job is not None:
            action = {"type": job.type, "cfg": job.config_json}
        resolved.append({**node, **action, "dependsOn": node.get("dependsOn") or [], "retry": _filled_retry(node)})
    snapshot = {**dag_json, "job": (dag_json.get("job") or "").strip() or name, "nodes": resolved}
    problem = json_problem(snapshot, max_bytes=MAX_SNAPSHOT_BYTES)
    if problem is not None:
        raise Conflict(f"the DAG with its jobs resolved: {problem}", code="JOB_UNAVAILABLE")
    return snapshot


def _filled_retry(node: Mapping[str, Any]) -> dict[str, Any]:
    default = RetryPolicy()
    return {
        "maxAttempts": default.max_attempts,
        "backoffMillis": default.backoff_millis,
        "backoffMultiplier": default.backoff_multiplier,
        **(node.get("retry") or {}),
    }


def _run_of_chain(
    connection: Connection, chain: Chain, params: Mapping[str, Any], *, actor: str, trigger: str, **nested: Any
) -> NewRun:
    if not chain.enabled:
        raise Conflict("chain is disabled", code="CHAIN_DISABLED")
    # Checked again, because other programs write the table too.
    dag_json = read_dag(chain.dag_json, None)
    snapshot = resolve(connection, dag_json, chain.name)
    return NewRun(
        job_name=str(snapshot["job"])[:MAX_JOB_NAME],
        snapshot=snapshot,
        params=params,
        actor=actor,
        trigger=trigger,
        chain_id=chain.chain_id,
        chain_version=chain.version,
        **nested,
    )


def _start_once(
    engine: Engine, run_id: str, prepare: Any, request_key: RequestKey | None, dagster_run_id: str | None = None
) -> StartedRun:
    def work(connection: Connection) -> StartedRun:
        chosen = run_id if request_key is None else claim_key(connection, request_key, run_id)
        if chosen != run_id or _exists(connection, chosen):
            return StartedRun(chosen, None)
        return StartedRun(chosen, write_run(connection, chosen, prepare(connection), dagster_run_id))

    return transact(engine, work)


def _exists(connection: Connection, run_id: str) -> bool:
    return connection.execute(select(job_run.c.run_id).where(job_run.c.run_id == run_id)).first() is not None

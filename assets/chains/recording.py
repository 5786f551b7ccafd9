"""The Dagster run of a drive: its job is built from the snapshot of the run that it drives, and from nothing else."""

from collections.abc import Mapping
from typing import Any

from dagster import DagsterInstance, JobDefinition, build_reconstructable_job
from sqlalchemy import Connection, Engine, Row, select

from assets.chains.driving import opened_engine
from assets.chains.job_building import build_job
from assets.chains.names import CHAIN_ID_TAG, CHAIN_TAG, VERSION_TAG, aliases, job_name
from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.runs.drives import STARTED
from platform_defs.chains.runs.queries import get_run, list_drives
from platform_defs.chains.runs.whole_run import node_statuses
from platform_defs.chains.states import NodeStatus
from platform_defs.chains.triggers import TABLE_TRIGGER
from platform_defs.runner.recorded_runs import PreparedRun
from platform_defs.store.engine import read
from platform_defs.store.tables.chains import job_chain_definition
from platform_defs.work.jobs import OPERATOR, RECOVERY, TRIGGER_TAG

# The job of the run that this process records and then executes.
_built: dict[str, JobDefinition] = {}


def prepare_run(instance: DagsterInstance, engine: Engine, payload: Mapping[str, Any]) -> PreparedRun:
    """The run of a row of kind chain_run. Nodes that have succeeded are shown in the graph, but are no steps of it."""
    run_id, drive_no = payload["run_id"], payload["drive_no"]
    run, name = _run_and_name(engine, run_id)
    dag = parse_snapshot(run.dag_json)
    _built[run_id] = build_job(dag, name, tags=_job_tags(run))
    statuses = read(engine, lambda connection: node_statuses(connection, run_id))
    alias_of = aliases(dag.by_id)
    left = [alias_of[node.id] for node in dag.in_order if statuses[node.id] is not NodeStatus.SUCCESS]
    drives = list_drives(engine, run_id)
    earlier = [drive.dagster_run_id for drive in drives if drive.drive_no < drive_no]
    recorded = [dagster_run_id for dagster_run_id in earlier if instance.has_run(dagster_run_id)]
    return PreparedRun(
        job=build_reconstructable_job(__name__, "job_of_run", (run_id,)),
        job_name=name,
        tags={**_job_tags(run), TRIGGER_TAG: next(who_asked(run, d) for d in drives if d.drive_no == drive_no)},
        step_keys=left if 0 < len(left) < len(statuses) else None,
        parent_run_id=recorded[-1] if recorded else None,
        root_run_id=recorded[0] if recorded else None,
    )


def who_asked(run: Row[Any], drive: Row[Any]) -> str:
    """Who asked for this drive: whatever started the run, or what somebody did to it afterwards."""
    if drive.reason == RECOVERY:
        return RECOVERY
    if drive.reason != STARTED:
        return f"{OPERATOR} ({drive.reason})"
    actor, trigger = run.actor or OPERATOR, run.trigger_text or OPERATOR
    if trigger.startswith(TABLE_TRIGGER):
        return f"arrival of {trigger.removeprefix(TABLE_TRIGGER)}"
    return {"api": f"{actor} (API)", "command": actor, "ui": actor}.get(trigger, trigger)


def job_of_run(run_id: str) -> JobDefinition:
    """The job of a run, as its Dagster run names it."""
    if run_id in _built:
        return _built[run_id]
    with opened_engine() as engine:
        run, name = _run_and_name(engine, run_id)
        return build_job(parse_snapshot(run.dag_json), name, tags=_job_tags(run))


def _run_and_name(engine: Engine, run_id: str) -> tuple[Row[Any], str]:
    """The run and the name of its job, which is that of the chain as it is called now."""
    run = get_run(engine, run_id)

    def look(connection: Connection) -> str | None:
        query = select(job_chain_definition.c.name).where(job_chain_definition.c.chain_id == run.chain_id)
        return connection.execute(query).scalar_one_or_none()

    name = read(engine, look) if run.chain_id else None
    return run, job_name(run.chain_id or run.job_id or run.run_id, name or run.job_name)


def _job_tags(run: Row[Any]) -> dict[str, str]:
    tags = {CHAIN_TAG: run.job_name}
    if run.chain_id is not None:
        tags |= {CHAIN_ID_TAG: run.chain_id, VERSION_TAG: str(run.chain_version)}
    return tags

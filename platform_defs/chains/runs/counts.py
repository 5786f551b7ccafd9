"""Counts and timings of runs and nodes, for metrics: each query follows an index, however many runs are on record."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, cast, func, select, text

from platform_defs.chains.states import ACTIVE, NodeStatus, RunStatus
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node
from platform_defs.store.tables.work import work
from platform_defs.store.types import is_mysql
from platform_defs.work.rows import is_finished

_GOING = sorted([RunStatus.PENDING, RunStatus.RUNNING, RunStatus.STOPPING])


@dataclass(frozen=True)
class NodeTiming:
    """How long the ended nodes of runs with this name took."""

    job_name: str
    count: int
    mean_s: float
    max_s: float


def runs_by_status(connection: Connection) -> dict[RunStatus, int]:
    found = connection.execute(select(job_run.c.status, func.count()).group_by(job_run.c.status))
    return dict.fromkeys(RunStatus, 0) | {RunStatus(status): count for status, count in found}


def runs_since(connection: Connection, since: datetime) -> int:
    return int(connection.execute(select(func.count()).select_from(job_run).where(_began_since(since))).scalar_one())


def nodes_in_flight(connection: Connection) -> dict[NodeStatus, int]:
    """Nodes that are at work or wait for their next attempt, in runs that are not over."""
    status = job_run_node.c.status
    query = (
        select(status, func.count())
        .join(job_run, job_run.c.run_id == job_run_node.c.run_id)
        .where(job_run.c.status.in_(_GOING), status.in_(sorted(ACTIVE)))
        .group_by(status)
    )
    return dict.fromkeys(sorted(ACTIVE), 0) | {NodeStatus(name): count for name, count in connection.execute(query)}


def runs_without_work(connection: Connection) -> int:
    """Runs that are not over and have no open row of work: the sensor `chains` has to go on with them."""
    is_open = (
        select(job_run_drive.c.run_id)
        .join(work, work.c.id == job_run_drive.c.work_id)
        .where(job_run_drive.c.run_id == job_run.c.run_id, ~is_finished(work.c.status))
        .exists()
    )
    query = select(func.count()).select_from(job_run).where(job_run.c.status.in_(_GOING), ~is_open)
    return int(connection.execute(query).scalar_one())


def node_timings(connection: Connection, since: datetime) -> Sequence[NodeTiming]:
    """By the name of the chain, of runs that began since then."""
    seconds = _seconds(connection)
    query = (
        select(job_run.c.job_name, func.count(), func.avg(seconds), func.max(seconds))
        .join(job_run_node, job_run_node.c.run_id == job_run.c.run_id)
        .where(_began_since(since), job_run_node.c.started_at.is_not(None), job_run_node.c.ended_at.is_not(None))
        .group_by(job_run.c.job_name)
    )
    return [
        NodeTiming(name, count, float(mean), float(longest)) for name, count, mean, longest in connection.execute(query)
    ]


def _began_since(since: datetime) -> ColumnElement[bool]:
    """Names every status, because the index over created_at begins with the status."""
    return job_run.c.status.in_(sorted(RunStatus)) & (job_run.c.created_at >= since)


def _seconds(connection: Connection) -> Any:
    started, ended = job_run_node.c.started_at, job_run_node.c.ended_at
    if is_mysql(connection.dialect):
        return func.timestampdiff(text("MICROSECOND"), started, ended) / 1e6
    return (cast(func.julianday(ended), Float) - func.julianday(started)) * 86_400

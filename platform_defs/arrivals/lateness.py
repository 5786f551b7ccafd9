"""Lateness: which tables of which batches have not arrived although their model says that they were due."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Connection, String, case, cast, func, select

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.matching import arrivals_per_dependency, batch_sql
from platform_defs.arrivals.models.due import Due, last_due_batch
from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.op_time import batch_of
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model, metrics_model_dependency

DAILY = 8


@dataclass(frozen=True)
class WatchedModel:
    """A published model that says when its tables are due."""

    model_id: str
    due: Due
    published_at: datetime | None
    # how many digits the opTimes of its arrivals have
    digits: int = DAILY
    # the batches of which at least one table arrived within the lookback
    begun: frozenset[str] = field(default_factory=frozenset)
    # the batches of which all tables arrived within the lookback: nothing of them can be late
    complete: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class LateBatch:
    """A batch whose tables were due and have not all arrived."""

    model_id: str
    op_time: str
    due_at: datetime
    tables: tuple[str, ...]


def expected_batches(watched: WatchedModel, zone: ZoneInfo, now: datetime, lookback: timedelta) -> dict[str, datetime]:
    """The batches whose tables must all have arrived by now, with the instant at which they were due.

    These are the batch that fell due last, and earlier ones of which something has arrived. A day on which nothing at
    all arrives is no longer expected once the next day is due, because not every calendar has a batch for each day.
    """
    since = max(now - lookback, watched.published_at or now - lookback)
    last = last_due_batch(watched.due, watched.digits, zone, now)
    found = {}
    for op_time in watched.begun | ({last} if last is not None else set()):
        at = watched.due.instant(op_time, zone)
        if at is not None and since < at <= now:
            found[op_time] = at
    return found


def find_late_batches(
    connection: Connection, zone: ZoneInfo, now: datetime, lookback: timedelta, model_ids: Iterable[str] | None = None
) -> dict[str, tuple[LateBatch, ...]]:
    """The late batches of every model that says when its tables are due; a model without any has an empty tuple."""
    watched = _load_watched_models(connection, now, lookback, model_ids)
    due: dict[Batch, datetime] = {
        (model.model_id, op_time): at
        for model in watched
        for op_time, at in expected_batches(model, zone, now, lookback).items()
        if op_time not in model.complete
    }
    late: dict[str, list[LateBatch]] = {model.model_id: [] for model in watched}
    for standing in load_standings(connection, sorted(due)):
        if tables := missing_tables(standing):
            batch = (standing.model_id, standing.op_time)
            late[standing.model_id].append(LateBatch(*batch, due[batch], tuple(tables)))
    return {model_id: tuple(found) for model_id, found in late.items()}


def _load_watched_models(
    connection: Connection, now: datetime, lookback: timedelta, model_ids: Iterable[str] | None
) -> list[WatchedModel]:
    model = metrics_model.c
    wanted: ColumnElement[bool] = model.due.is_not(None)
    if model_ids is not None:
        wanted &= model.model_id.in_(sorted(model_ids))
    query = select(model.model_id, model.due, model.published_at).where(model.state == PUBLISHED, wanted)
    rows = connection.execute(query.order_by(model.model_id)).all()
    if not rows:
        return []
    recent, newest = _recent_batches(connection, wanted, now - lookback), _newest_batches(connection, wanted, now)
    watched = []
    for row in rows:
        due, begun, newest_of_tables = Due.parse(row.due), recent[row.model_id], newest[row.model_id]
        if due is None:
            continue
        # The newest batch tells how long opTimes are. As they begin with the year, the newest is the greatest text.
        digits = len(max([*begun, *filter(None, newest_of_tables)], default="yyyymmdd"))
        complete = frozenset(op_time for op_time, count in begun.items() if count == len(newest_of_tables))
        watched.append(WatchedModel(row.model_id, due, row.published_at, digits, frozenset(begun), complete))
    return watched


def _newest_batches(
    connection: Connection, wanted: ColumnElement[bool], now: datetime
) -> Mapping[str, list[str | None]]:
    """For each model the newest batch of each dependency, by its literal name and however long ago.

    The subquery reads one entry of an index for each dependency.
    """
    model, dependency, log = metrics_model.c, metrics_model_dependency.c, metrics_etl_log.c
    # Leaves out opTimes such as 99991231, which are no real batches.
    tomorrow = f"{now + timedelta(days=1):%Y%m%d}~"
    newest = (
        select(func.max(log.op_time))
        .where(log.table_name == dependency.dependency_table_name, log.op_time <= tomorrow)
        .scalar_subquery()
    )
    query = (
        select(dependency.model_id, newest)
        .join(metrics_model, model.model_id == dependency.model_id)
        .where(model.state == PUBLISHED, wanted)
    )
    found: dict[str, list[str | None]] = defaultdict(list)
    for model_id, op_time in connection.execute(query):
        found[model_id].append(None if op_time is None else batch_of(op_time))
    return found


def _recent_batches(
    connection: Connection, wanted: ColumnElement[bool], since: datetime
) -> Mapping[str, dict[str, int]]:
    """For each model the batches with an arrival since the instant, and how many dependencies have arrived of each."""
    recent = arrivals_per_dependency(since, wanted).subquery("lately").c
    # An arrival whose time may be unreadable is not counted, so that its batch is judged by load_standings.
    is_time = cast(recent.arrival_time, String(32)).like("____-__-__ __:__:__%")
    query = select(
        recent.model_id,
        batch_sql(recent.op_time).label("batch"),
        func.count(case((is_time, recent.dependency)).distinct()),
    ).group_by(recent.model_id, "batch")
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for model_id, op_time, count in connection.execute(query):
        found[model_id][op_time] = count
    return found

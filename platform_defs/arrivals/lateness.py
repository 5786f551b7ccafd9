"""Lateness: which tables of which batch have not arrived although their model said by when they are due."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Connection, String, case, cast, func, select

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.matching import arrivals_per_dependency, batch_sql
from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.op_time import batch_of
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model, metrics_model_dependency

_DUE = re.compile(r"(?:\+(\d+) )?(\d\d):(\d\d)", re.ASCII)
# The batches that follow each other by the calendar: years, months and days.
_FORMATS = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d"}
DAILY = 8


@dataclass(frozen=True)
class Due:
    """So many days after the batch's day, at this time of the deployment's zone."""

    days: int
    at: time

    @classmethod
    def parse(cls, text: str) -> "Due | None":
        """`08:30` or `+1 08:30`; None for what no model file may say."""
        found = _DUE.fullmatch(text)
        if found is None or int(found[2]) > 23 or int(found[3]) > 59:
            return None
        return cls(int(found[1] or 0), time(int(found[2]), int(found[3])))

    def instant(self, op_time: str, zone: ZoneInfo) -> datetime | None:
        """When the batch's tables are due; None where the opTime is no date."""
        day = batch_day(op_time)
        if day is None:
            return None
        try:
            return datetime.combine(day + timedelta(days=self.days), self.at, zone).astimezone(UTC)
        except OverflowError:  # 99991231 stands for "never" in many a warehouse
            return None


@dataclass(frozen=True)
class WatchedModel:
    """A published model that says when its tables are due."""

    model_id: str
    due: Due
    published_at: datetime | None
    # how long the opTimes are with which its tables arrive
    digits: int = DAILY
    # the batches of which something arrived lately
    begun: frozenset[str] = field(default_factory=frozenset)
    # those of which all arrived lately: nobody need look any further
    complete: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class LateBatch:
    model_id: str
    op_time: str
    due_at: datetime
    tables: tuple[str, ...]


@lru_cache(maxsize=4096)  # thousands of models share their batches
def batch_day(op_time: str) -> date | None:
    """The batch's first day: that of `20251219`, `2025-12-19` and `2025121908`, the first of the month for `202512`."""
    digits = op_time.replace("-", "")
    for length in sorted(_FORMATS, reverse=True):
        if len(digits) >= length:
            try:
                return datetime.strptime(digits[:length], _FORMATS[length]).replace(tzinfo=UTC).date()
            except ValueError:
                return None
    return None


def last_due_batch(due: Due, digits: int, zone: ZoneInfo, now: datetime) -> str | None:
    """The batch that fell due last; None where the calendar does not say which batches there are."""
    if digits not in _FORMATS:
        return None
    day = now.astimezone(zone).date() - timedelta(days=due.days)
    op_time = day.strftime(_FORMATS[digits])
    at = due.instant(op_time, zone)
    if at is not None and at > now:
        first = batch_day(op_time) or day
        op_time = (first - timedelta(days=1)).strftime(_FORMATS[digits])
    return op_time


def expected_batches(watched: WatchedModel, zone: ZoneInfo, now: datetime, lookback: timedelta) -> dict[str, datetime]:
    """The batches whose tables must all have arrived by now, with the instant at which they were due.

    The one that fell due last, and those that have begun to arrive; a day on which nothing at all arrives is forgotten
    once the next one is due, since not every calendar has a batch a day.
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
    """What is late, of every model that says when its tables are due; empty for one that has them all."""
    watched = _load_watched(connection, now, lookback, model_ids)
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


def _load_watched(
    connection: Connection, now: datetime, lookback: timedelta, model_ids: Iterable[str] | None
) -> list[WatchedModel]:
    model = metrics_model.c
    wanted: ColumnElement[bool] = model.due.is_not(None)
    if model_ids is not None:
        wanted &= model.model_id.in_(sorted(model_ids))
    query = select(model.model_id, model.due, model.published_at).where(model.state == PUBLISHED, wanted)
    known = connection.execute(query.order_by(model.model_id)).all()
    if not known:
        return []
    met_lately, newest = _recent_batches(connection, wanted, now - lookback), _newest_batches(connection, wanted, now)
    watched = []
    for row in known:
        due, begun, last = Due.parse(row.due), met_lately[row.model_id], newest[row.model_id]
        if due is None:
            continue
        # as the newest batch is written: of a sequence of texts that begin with the year it is the last one
        digits = len(max([*begun, *filter(None, last)], default="yyyymmdd"))
        complete = frozenset(op_time for op_time, count in begun.items() if count == len(last))
        watched.append(WatchedModel(row.model_id, due, row.published_at, digits, frozenset(begun), complete))
    return watched


def _newest_batches(
    connection: Connection, wanted: ColumnElement[bool], now: datetime
) -> Mapping[str, list[str | None]]:
    """The newest batch of each dependency by its literal name, however long ago; one look into an index for each."""
    model, dependency, log = metrics_model.c, metrics_model_dependency.c, metrics_etl_log.c
    # what is called 99991231 is no batch to learn from
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
    """The batches that have begun to arrive, and how many of the model's dependencies each has."""
    lately = arrivals_per_dependency(since, wanted).subquery("lately").c
    # one whose time nobody may be able to read is left to the closer look
    is_time = cast(lately.arrival_time, String(32)).like("____-__-__ __:__:__%")
    query = select(
        lately.model_id,
        batch_sql(lately.op_time).label("batch"),
        func.count(case((is_time, lately.dependency)).distinct()),
    ).group_by(lately.model_id, "batch")
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for model_id, op_time, count in connection.execute(query):
        found[model_id][op_time] = count
    return found

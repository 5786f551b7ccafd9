"""Batches whose source was down for all their tries: they are executed again once the source answers."""

import logging
from collections import defaultdict
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection, Engine, and_, select

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.executions.lifecycle import queue_executions
from platform_defs.arrivals.executions.next_attempt import RETRIES, Order
from platform_defs.arrivals.executions.running_batches import transact_until_uncontended
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus, Trigger, has_later_task
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.arrivals.standings import load_standings
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import PLATFORM_SOURCE, Sources
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_model, metrics_model_running, metrics_task_log

ASK_EVERY = timedelta(minutes=1)
# A source that answers and then fails again is not asked for the same batch more often.
BEGIN_EVERY = timedelta(minutes=10)
_log = logging.getLogger(__name__)


class SourceWatch:
    """Remembers when each source was asked last."""

    def __init__(self) -> None:
        self._asked: dict[str, datetime] = {}

    def begin(self, engine: Engine, sources: Sources, lookback: timedelta, now: datetime) -> dict[Batch, int]:
        """Queues the batches whose source answers again; returns their new tasks."""
        waiting = read(engine, lambda connection: _waiting_batches(connection, now - lookback, now))
        begun: dict[Batch, int] = {}
        for source, batches in waiting.items():
            # A time to come was noted before a clock was set back: it must not keep the source from being asked.
            if timedelta(0) <= now - self._asked.get(source, now - ASK_EVERY) < ASK_EVERY:
                continue
            self._asked[source] = now
            try:
                sources.ask(source)
            except SourceError as error:
                _log.warning("source %s does not answer, and %d batches wait for it: %s", source, len(batches), error)
                continue
            begun |= transact_until_uncontended(engine, partial(_begin, source=source, since=now - lookback, now=now))
        return begun


def _begin(connection: Connection, source: str, since: datetime, now: datetime) -> dict[Batch, int]:
    """Looks at the batches anew: while the source was asked, an arrival may have had one of them executed."""
    begun: dict[Batch, int] = {}
    batches = _waiting_batches(connection, since, now).get(source, {})
    for standing in load_standings(connection, sorted(batches)):
        if standing.published and not missing_tables(standing):
            order = batches[standing.model_id, standing.op_time]
            begun |= queue_executions(connection, [standing], Trigger.RETRY, now, order=order)
    return begun


def _waiting_batches(connection: Connection, since: datetime, now: datetime) -> dict[str, dict[Batch, Order]]:
    """By their source, the batches whose newest task failed because the source was down, and how they are queued."""
    log, model, running = metrics_task_log, metrics_model, metrics_model_running
    query = (
        select(log.c.model_id, log.c.op_time, log.c.start_time, log.c.try_number, model.c.source, model.c.retries)
        .select_from(log)
        .join(model, model.c.model_id == log.c.model_id)
        .outerjoin(running, and_(running.c.model_id == log.c.model_id, running.c.op_time == log.c.op_time))
        .where(
            log.c.status == TaskStatus.FAILED,
            log.c.start_time >= since,
            log.c.failure_code == FailureCode.SOURCE,
            running.c.task_id.is_(None),
            ~has_later_task(),
        )
    )
    found: dict[str, dict[Batch, Order]] = defaultdict(dict)
    for row in connection.execute(query):
        last_try = RETRIES + 1 if row.retries is None else row.retries + 1
        # Numbers beyond the last try are of executions that were queued here.
        if row.try_number <= last_try or row.start_time <= now - BEGIN_EVERY:
            order = Order(try_number=last_try + 1)
            found[row.source or PLATFORM_SOURCE][row.model_id, row.op_time] = order
    return found

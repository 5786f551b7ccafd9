"""Statements that outlive their execution: a server goes on with a query although the process that sent it is dead.

Whoever closes an execution in place of its own process leaves a time in its task, until which its statement is looked
for. The next execution of the batch ends it before it sends its own, and a sensor ends what nobody else has.
"""

import logging
from collections import defaultdict
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Engine, Row, select, update

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import PLATFORM_SOURCE, Sources
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_model, metrics_task_log

_log = logging.getLogger(__name__)


def statement_mark(task_id: int, run_id: str | None) -> str:
    """Identifies the statement of a task at the source. The run's id tells it from tasks of other platforms there."""
    return f"platform task {task_id} run {run_id}"


def end_left_statements(engine: Engine, sources: Sources, now: datetime, batch: Batch | None = None) -> list[str]:
    """Ends the statements of closed executions, of one batch or of all; returns what could not be done yet."""
    log, model = metrics_task_log.c, metrics_model.c
    query = (
        select(log.id, log.run_id, log.model_id, log.op_time, log.statement_until, model.source)
        .outerjoin_from(metrics_task_log, metrics_model, model.model_id == log.model_id)
        .where(log.statement_until.is_not(None))
    )
    if batch is not None:
        query = query.where(in_batches(log.model_id, log.op_time, [batch]))
    by_source: dict[str, dict[str, Row[Any]]] = defaultdict(dict)
    for row in read(engine, lambda connection: connection.execute(query).all()):
        by_source[row.source or PLATFORM_SOURCE][statement_mark(row.id, row.run_id)] = cast("Row[Any]", row)
    problems, over = [], []
    for source, tasks in by_source.items():
        try:
            ended = sources.end_statements(source, list(tasks))
            reason = "it does not end"
        except SourceError as error:
            ended, reason = set(), str(error)
        for mark, task in tasks.items():
            if mark in ended:
                over.append(task.id)
                continue
            problem = f"the query of task {task.id} ({task.model_id} for {task.op_time}) may still run at {source}"
            if task.statement_until < now:
                over.append(task.id)
                _log.error("%s and is not looked for any more: %s", problem, reason)
            else:
                problems.append(f"{problem}: {reason}")
    if over:
        done = update(metrics_task_log).where(log.id.in_(over)).values(statement_until=None)
        transact(engine, lambda connection: connection.execute(done))
    return problems

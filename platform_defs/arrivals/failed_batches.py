"""The check `executions_succeeded` of a model: which of its recent batches failed when they were last executed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, select

from platform_defs.arrivals.checks import CheckOutcome
from platform_defs.arrivals.executions.task_log import TaskStatus, has_later_task
from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.store.tables.arrivals import metrics_model, metrics_task_log

EXECUTIONS_SUCCEEDED = "executions_succeeded"
NAMED = 10


@dataclass(frozen=True)
class FailedBatch:
    """A batch whose last execution failed."""

    op_time: str
    task_id: int
    message: str


def find_failed_batches(
    connection: Connection, since: datetime, model_ids: Iterable[str] | None = None
) -> dict[str, tuple[FailedBatch, ...]]:
    """The failed batches of every published model whose execution began since then; an empty tuple if it has none.

    An execution that is still under way does not count: until it has ended, the one before it was the last.
    """
    task, model = metrics_task_log.c, metrics_model.c
    wanted: ColumnElement[bool] = model.state == PUBLISHED
    if model_ids is not None:
        wanted &= model.model_id.in_(sorted(model_ids))
    found: dict[str, list[FailedBatch]] = {
        model_id: [] for model_id in connection.scalars(select(model.model_id).where(wanted).order_by(model.model_id))
    }
    executed_again = has_later_task(TaskStatus.SUCCESS, TaskStatus.FAILED)
    failed = (
        select(task.model_id, task.op_time, task.id, task.message)
        .join_from(metrics_task_log, metrics_model, model.model_id == task.model_id)
        .where(task.status == TaskStatus.FAILED, task.start_time >= since, wanted, ~executed_again)
        .order_by(task.op_time, task.id)
    )
    for model_id, op_time, task_id, message in connection.execute(failed):
        found[model_id].append(FailedBatch(op_time, task_id, message or "no reason was recorded"))
    return {model_id: tuple(batches) for model_id, batches in found.items()}


def failed_outcome(failed: Sequence[FailedBatch]) -> CheckOutcome:
    if not failed:
        return CheckOutcome(True, "the last execution of every recent batch succeeded")
    named = [f"batch {batch.op_time} failed (task {batch.task_id}): {batch.message}" for batch in failed[:NAMED]]
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return CheckOutcome(
        False,
        "; ".join(named) + more,
        {
            "opTime": ", ".join(batch.op_time for batch in failed),
            "task": ", ".join(str(batch.task_id) for batch in failed),
            "what to do": "mend the cause, then Materialize, Failed and missing; an arrival runs its batch again too",
        },
    )

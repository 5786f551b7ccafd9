"""`platform models values|tasks|batches`: what the models have computed, and how their batches stand."""

import json
from typing import Any

import click

from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.arrivals.op_time import batch_of
from platform_defs.arrivals.results.batches import MAX_BATCHES, find_batch, json_batch, newest_batches
from platform_defs.arrivals.results.tasks import MAX_TASKS, json_task, newest_tasks
from platform_defs.arrivals.results.values import json_value, read_values
from platform_defs.connections import open_database
from platform_defs.store.engine import read

_PAGE = 500
_TASK_COLUMNS = (
    *("taskId", "opTime", "status", "trigger", "startTime", "endTime"),
    *("computeCount", "storageCount", "message"),
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
_model = click.argument("model_id", metavar="ID")
_batch = click.option("--op-time", help="Only this batch.")


@click.command("values")
@_model
@_batch
@click.option("--kpi", "kpi_id", help="Only this KPI.")
@_json
def values(model_id: str, op_time: str | None, kpi_id: str | None, as_json: bool) -> None:
    """Print the values of the model's KPIs, and of the computed KPIs that build on them, in order of opTime."""
    wanted, cursor = op_time and batch_of(op_time), None
    with open_database() as engine:
        while True:

            def look(connection: Any, after: str | None = cursor) -> Any:
                return read_values(connection, model_id, op_time=wanted, kpi_id=kpi_id, cursor=after, limit=_PAGE)

            page = read(engine, look)
            for value in page.values:
                _print(json_value(value), as_json, ("opTime", "kpiId", "dims", "value"))
            cursor = page.next_cursor
            if cursor is None:
                return


@click.command("tasks")
@_model
@_batch
@click.option("--status", type=click.Choice(list(TaskStatus), case_sensitive=False), help="Only tasks of this status.")
@click.option("--limit", type=click.IntRange(1, MAX_TASKS), default=20, show_default=True)
@_json
def tasks(model_id: str, op_time: str | None, status: str | None, limit: int, as_json: bool) -> None:
    """List executions of the model, the newest first: id, batch, status, why, start, end, rows, values, message."""
    wanted = op_time and batch_of(op_time)
    with open_database() as engine:
        found = read(
            engine,
            lambda connection: newest_tasks(
                connection, model_id, op_time=wanted, status=status and status.upper(), limit=limit
            ),
        )
    for task in found:
        _print(json_task(task), as_json, _TASK_COLUMNS)


@click.command("batches")
@_model
@_batch
@click.option("--limit", type=click.IntRange(1, MAX_BATCHES), default=20, show_default=True)
@_json
def batches(model_id: str, op_time: str | None, limit: int, as_json: bool) -> None:
    """List batches of the model, the newest first: opTime, what it is (DUE, WAITING, CURRENT), missing tables, task."""
    with open_database() as engine:
        if op_time is None:
            found = read(engine, lambda connection: newest_batches(connection, model_id, limit))
        else:
            wanted = batch_of(op_time)
            found = [read(engine, lambda connection: find_batch(connection, model_id, wanted))]
    for batch in found:
        fields = json_batch(batch)
        if not as_json:
            task = fields["lastTask"] or {}
            fields |= {"lastTask": f"{task['taskId']} {task['status']}" if task else None}
        _print(fields, as_json, ("opTime", "verdict", "missing", "lastTask"))


def _print(fields: dict[str, Any], as_json: bool, columns: Any) -> None:
    if as_json:
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        click.echo("\t".join(_text(fields[name]) for name in columns))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


COMMANDS: tuple[click.Command, ...] = (values, tasks, batches)

"""`platform models values|tasks|batches`: what the models have computed, and how their batches stand."""

from collections.abc import Mapping
from typing import Any

import click

from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.arrivals.op_time import batch_of
from platform_defs.arrivals.results.batches import MAX_BATCHES, find_batch, json_batch, newest_batches
from platform_defs.arrivals.results.tasks import MAX_TASKS, json_task, newest_tasks
from platform_defs.arrivals.results.values import json_value, read_values
from platform_defs.commands.tables import json_option, limit_option, print_rows, print_table
from platform_defs.connections import open_database
from platform_defs.store.engine import read

_PAGE = 500
# What people see of each, by its header. Programs get the fields of the API.
_VALUE_COLUMNS = {"opTime": "opTime", "kpi": "kpiId", "dims": "dims", "value": "value"}
_TASK_COLUMNS = {
    **{"task": "taskId", "opTime": "opTime", "status": "status", "why": "trigger", "started": "startTime"},
    **{"ended": "endTime", "rows": "computeCount", "values": "storageCount", "message": "message"},
}
_BATCH_COLUMNS = {"opTime": "opTime", "verdict": "verdict", "missing": "missing", "last task": "lastTask"}
_model = click.argument("model_id", metavar="ID")
_batch = click.option("--op-time", help="Only this batch, such as 20251219.")


@click.command("values")
@_model
@_batch
@click.option("--kpi", "kpi_id", help="Only this KPI.")
@json_option
def values(model_id: str, op_time: str | None, kpi_id: str | None, as_json: bool) -> None:
    """Print the values of the model's KPIs. Also of the computed KPIs that build on them, in order of opTime."""
    wanted, cursor = op_time and batch_of(op_time), None
    with open_database() as engine:
        while True:

            def look(connection: Any, after: str | None = cursor) -> Any:
                return read_values(connection, model_id, op_time=wanted, kpi_id=kpi_id, cursor=after, limit=_PAGE)

            page = read(engine, look)
            rows = [json_value(value) for value in page.values]
            if cursor is None or rows:
                _print(rows, as_json, _VALUE_COLUMNS, goes_on=cursor is not None, nothing="no values")
            cursor = page.next_cursor
            if cursor is None:
                return


@click.command("tasks")
@_model
@_batch
@click.option("--status", type=click.Choice(list(TaskStatus), case_sensitive=False), help="Only tasks of this status.")
@limit_option(20, MAX_TASKS)
@json_option
def tasks(model_id: str, op_time: str | None, status: str | None, limit: int, as_json: bool) -> None:
    """List executions of the model, the newest first."""
    wanted = op_time and batch_of(op_time)
    with open_database() as engine:
        found = read(
            engine,
            lambda connection: newest_tasks(
                connection, model_id, op_time=wanted, status=status and status.upper(), limit=limit
            ),
        )
        if not found:
            read(engine, lambda connection: newest_batches(connection, model_id, 1))  # raises if there is no such model
    _print([json_task(task) for task in found], as_json, _TASK_COLUMNS, nothing="no executions")


@click.command("batches")
@_model
@_batch
@limit_option(20, MAX_BATCHES)
@json_option
def batches(model_id: str, op_time: str | None, limit: int, as_json: bool) -> None:
    """List batches of the model, the newest first. A batch is DUE, WAITING (for the missing tables) or CURRENT."""
    with open_database() as engine:
        if op_time is None:
            found = read(engine, lambda connection: newest_batches(connection, model_id, limit))
        else:
            wanted = batch_of(op_time)
            found = [read(engine, lambda connection: find_batch(connection, model_id, wanted))]
    rows = [json_batch(batch) for batch in found]
    for fields in [] if as_json else rows:
        task = fields["lastTask"] or {}
        fields |= {"lastTask": f"{task['taskId']} {task['status']}" if task else None}
    _print(rows, as_json, _BATCH_COLUMNS, nothing="no batches: no table has arrived yet")


def _print(
    rows: list[dict[str, Any]], as_json: bool, columns: Mapping[str, str], *, nothing: str, goes_on: bool = False
) -> None:
    if as_json or not rows:
        print_rows(rows, as_json=as_json, nothing=nothing)
    else:
        print_table(list(columns), [[fields[name] for name in columns.values()] for fields in rows], goes_on=goes_on)


COMMANDS: tuple[click.Command, ...] = (values, tasks, batches)

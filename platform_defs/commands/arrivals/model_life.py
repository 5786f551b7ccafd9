"""`platform models rename|retire|delete|run`: changes of models after they were loaded, and their old batches."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
from sqlalchemy import Engine

from platform_defs.arrivals.executions.old_batches import complete_batches, queue_again
from platform_defs.arrivals.executions.task_log import Task, TaskStatus, ended_tasks, recovery_tasks
from platform_defs.arrivals.models import life
from platform_defs.arrivals.op_time import batch_of
from platform_defs.commands.tables import print_object, result_option
from platform_defs.commands.waking import wake_runner
from platform_defs.connections import open_database

LOOK_S = 0.5
_model = click.argument("model_id", metavar="ID")


@click.command("rename")
@_model
@click.argument("new_id", metavar="NEW_ID")
def rename(model_id: str, new_id: str) -> None:
    """Give a model another id. Its values, tasks and deliveries follow; refused while one of its batches runs."""
    with open_database() as engine:
        life.rename(engine, model_id, new_id)
    click.echo(
        f"{model_id} is now {new_id}. Change the file that you load it from; Dagster keeps the old asset's history"
    )


@click.command("retire")
@_model
def retire(model_id: str) -> None:
    """Take a model out of use: arrivals no longer name it. Its values stay; `publish` brings it back."""
    with open_database() as engine:
        new = life.retire(engine, model_id)
    click.echo(f"{model_id} retired; its values stay" if new else f"{model_id} is already retired")


@click.command("delete")
@_model
@click.option("--values", "with_values", is_flag=True, help="Delete its stored values too.")
@result_option
def delete(model_id: str, with_values: bool, as_json: bool) -> None:
    """Delete a model, its KPIs, and computed KPIs that build on them. Refused while one of its batches runs."""
    with open_database() as engine:
        deleted = life.remove(engine, model_id, with_values=with_values)
    if as_json:
        print_object({"model": model_id} | asdict(deleted))
        return
    click.echo(f"{model_id} deleted with the KPIs {', '.join(deleted.kpis) or 'none'}")
    click.echo(f"{deleted.values} values deleted" if with_values else "its values stay; --values deletes them too")
    if deleted.disabled_subscriptions:
        click.echo(f"disabled subscriptions: {', '.join(map(str, deleted.disabled_subscriptions))}")


@click.command("run")
@_model
@click.option("--from", "first", required=True, metavar="OPTIME", help="The first batch, such as 20251201.")
@click.option("--to", "last", required=True, metavar="OPTIME", help="The last batch, included.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch, when it has ended.")
def run(model_id: str, first: str, last: str, as_json: bool) -> None:
    """Execute batches again whose tables have all arrived.

    What arrivals make due goes first. Exit code 0 if all batches succeed.
    """
    begin, end = batch_of(first), batch_of(last)
    if begin > end:
        raise click.UsageError(f"expected --from to be no later than --to, got {begin} and {end}")
    with open_database() as engine:
        op_times = complete_batches(engine, model_id, begin, end)
        if not op_times:
            click.echo(
                f"no batch from {begin} to {end} has all its tables; `platform models batches` lists them", err=True
            )
            return
        queued = queue_again(engine, model_id, op_times)
        wake_runner(engine)
        busy = [op_time for op_time in op_times if op_time not in queued]
        told = "1 batch queued" if len(queued) == 1 else f"{len(queued)} batches queued"
        if busy:
            told += f", {len(busy)} {'is' if len(busy) == 1 else 'are'} being executed already"
        click.echo(told, err=as_json)
        failed = _follow(engine, queued, as_json)
    if failed:
        click.echo(f"{failed} of {len(queued)} batches failed", err=True)
        raise click.exceptions.Exit(1)


def _follow(engine: Engine, queued: Mapping[str, int], as_json: bool) -> int:
    """Prints each batch when it has ended, and returns how many failed. What is tried again is waited for."""
    waiting = {task_id: op_time for op_time, task_id in queued.items()}
    failed = 0
    while waiting:
        ended = ended_tasks(engine, list(waiting))
        again = recovery_tasks(engine, [task for task in ended.values() if task.status is TaskStatus.FAILED])
        for task in ended.values():
            op_time = waiting.pop(task.id)
            if task.id in again:
                waiting[again[task.id]] = op_time
                continue
            failed += task.status is not TaskStatus.SUCCESS
            if as_json:
                print_object(_batch_fields(op_time, task))
                continue
            done = f"{len(queued) - len(waiting)}/{len(queued)}  {op_time}"
            if task.status is TaskStatus.SUCCESS:
                click.echo(f"{done}  {task.compute_count} rows, {task.storage_count} values")
            else:
                click.echo(f"{done}  FAILED: {task.message}")
        if waiting:
            time.sleep(LOOK_S)
    return failed


def _batch_fields(op_time: str, task: Task) -> dict[str, Any]:
    return {
        "opTime": op_time,
        "taskId": task.id,
        "status": str(task.status),
        "computeCount": task.compute_count,
        "storageCount": task.storage_count,
        "message": task.message,
    }


COMMANDS: tuple[click.Command, ...] = (rename, retire, delete, run)

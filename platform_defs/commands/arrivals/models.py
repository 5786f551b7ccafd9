"""`platform models`: load models and KPIs from a file, publish them and list them."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from platform_defs.arrivals.executions.recovery import find_running_task, row_of_task, settle_dead_executions
from platform_defs.arrivals.executions.statements import end_left_statements
from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.arrivals.models.life import disable_orphaned_subscriptions, stored_batches
from platform_defs.arrivals.models.model import Model
from platform_defs.commands.arrivals import model_life, model_results
from platform_defs.commands.runner import log_to_terminal, open_instance
from platform_defs.commands.tables import DatabaseId, json_option, print_object, print_rows, result_option
from platform_defs.connections import open_database
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.store.engine import read
from platform_defs.work.wake import wake
from platform_defs.yaml_lines import YamlFileError

_RELOADS = "the code location reloads, so that the UI shows it"


@click.group("models")
def command() -> None:
    """Load, publish and list models and their KPIs, and read what they computed."""


for _command in (*model_results.COMMANDS, *model_life.COMMANDS):
    command.add_command(_command)


@command.command("load")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@result_option
def load(file: Path, dry_run: bool, as_json: bool) -> None:
    """Load the models and KPIs of FILE. New models are unpublished. A file with a problem is refused as a whole."""
    contents = read_file(file.read_bytes(), str(file))
    try:
        with open_database() as engine:
            if dry_run:
                changes = read(engine, lambda connection: catalog.preview(connection, contents))
                if as_json:
                    print_object({"changes": changes})
                else:
                    click.echo("\n".join(changes) if changes else "nothing would change")
                return
            summary = catalog.save(engine, contents, disable_orphaned_subscriptions)
            stored = read(engine, lambda connection: stored_batches(connection, summary.new_versions))
    except YamlFileError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        raise click.exceptions.Exit(1) from None
    if as_json:
        old = {id: {"from": first, "to": last} for id, (first, last) in stored.items()}
        print_object(asdict(summary) | {"old_batches": old})
        return
    for what, ids in (("new", summary.new), ("updated", summary.updated), ("computed KPIs", summary.computed)):
        if ids:
            click.echo(f"{what}: {', '.join(ids)}")
    for model_id, version in summary.new_versions.items():
        click.echo(f"{model_id} is now version {version}")
        if model_id in stored:
            first, last = stored[model_id]
            click.echo(f"  run its old batches: platform models run {model_id} --from {first} --to {last}")
    if summary.disabled_subscriptions:
        click.echo(f"disabled subscriptions: {', '.join(map(str, summary.disabled_subscriptions))}")


@command.command("publish")
@click.argument("model_id", metavar="ID")
def publish(model_id: str) -> None:
    """Let arrivals trigger the model from now on."""
    with open_database() as engine:
        new = catalog.publish(engine, model_id)
    if not new:
        click.echo(f"{model_id} is already published")
        return
    days = Settings.load().arrivals_lookback_days
    click.echo(f"{model_id} published; {_RELOADS}. Batches of the last {days} days whose tables have arrived run now")


@command.command("release")
@click.argument("task", type=DatabaseId())
def release(task: int) -> None:
    """Free the stuck TASK: end its process, close it and its run. Its arrivals count as unread, so it begins anew."""
    settings = Settings.load()
    log_to_terminal(settings)
    with open_database(settings) as engine, open_instance(settings) as instance:
        from platform_defs.runner.release import release_row, whoami

        dead = find_running_task(engine, task, f"released by {whoami()}")
        row = read(engine, lambda connection: row_of_task(connection, task))
        if row is not None:
            release_row(instance, engine, row)
        elif dead.run_id is not None and (run := instance.get_run_by_id(dead.run_id)) and not run.is_finished:
            instance.report_run_canceled(run, message=dead.reason)
        settle_dead_executions(engine, datetime.now(UTC), [dead])
        end_left_statements(engine, Sources(engine, settings.sources), datetime.now(UTC))
    wake(settings.home)
    click.echo(f"task {task} ({dead.batch[0]} for {dead.batch[1]}) is released; its arrivals count as unread")


@command.command("unpublish")
@click.argument("model_id", metavar="ID")
def unpublish(model_id: str) -> None:
    """Let arrivals no longer trigger the model. Its stored values stay."""
    with open_database() as engine:
        new = catalog.unpublish(engine, model_id)
    click.echo(f"{model_id} unpublished; {_RELOADS}" if new else f"{model_id} is not published")


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List models: id, name, state, source, tables, KPIs, due."""
    with open_database() as engine:
        models = read(engine, catalog.load_models)
    rows = [_listed_fields(model) for model in models.values()]
    print_rows(rows, as_json=as_json, nothing="no models yet; `platform models load FILE` loads some")


def _listed_fields(model: Model) -> dict[str, str | list[str] | None]:
    return {
        "id": model.model_id,
        "name": model.name,
        "state": "published" if model.published else "retired" if model.retired else "unpublished",
        "source": model.source,
        "tables": list(model.depends_on),
        "kpis": [kpi.kpi_id for kpi in model.kpis],
        "due": model.due,
    }

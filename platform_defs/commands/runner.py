"""`platform runner`: the process that executes runs, and its status."""

import json
import logging
import os

import click

from platform_defs.commands.tables import print_table
from platform_defs.connections import open_database
from platform_defs.settings import Settings
from platform_defs.work import rows, runners, wake


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Run the runner: a warm fork server that executes every run in a process of its own."""
    if context.invoked_subcommand is None:
        _serve()


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> None:
    """Show the runners that are alive, their slots and the queue; exit code 1 if no runner is alive."""
    with open_database() as engine:
        alive, queue = runners.living_runners(engine), rows.count_open_rows(engine)
    if as_json:
        runner_fields = [
            {"name": r.name, "pid": r.process.pid, "slots": r.slots, "busy": r.busy, "loadError": r.load_error}
            for r in alive
        ]
        click.echo(json.dumps({"runners": runner_fields, "queued": queue[rows.Status.QUEUED]}))
    else:
        if alive:
            lines = [(r.name, f"{r.busy} of {r.slots}", f"{r.started_at:%F %T} UTC") for r in alive]
            print_table(("runner", "busy slots", "since"), lines)
        for runner in alive:
            if runner.load_error:
                click.echo(f"{runner.name}: the code location does not load: {runner.load_error}")
        click.echo(f"{queue[rows.Status.QUEUED]} waiting, {queue[rows.Status.RUNNING]} running")
    if not alive:
        raise click.ClickException("no runner is alive; `platform up` or `platform runner` starts one")


def _serve() -> None:
    settings = Settings.load()
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # The listener comes before Dagster's files: a second runner, which it refuses, must change nothing in the home.
    with open_database(settings) as engine, wake.open_listener(settings.home) as listener:
        from platform_defs import dagster_instance

        dagster_instance.prepare(settings)
        os.environ.update(dagster_instance.environment(settings))

        from dagster import DagsterInstance

        from platform_defs.runner.runner import Runner

        with DagsterInstance.get() as instance:
            Runner(settings, engine, instance).run(listener)

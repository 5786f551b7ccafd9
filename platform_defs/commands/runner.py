"""`platform runner`: the process that executes runs, and its status."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from platform_defs.arrivals.executions.recovery import settle_dead_executions
from platform_defs.arrivals.executions.statements import end_left_statements
from platform_defs.commands.tables import DatabaseId, print_object, print_table
from platform_defs.connections import open_database
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.stuck import find_stuck
from platform_defs.work import rows, runners, wake

if TYPE_CHECKING:
    from dagster import DagsterInstance


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Run the runner: a warm fork server that executes every run in a process of its own."""
    if context.invoked_subcommand is None:
        _serve()


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> None:
    """Show living runners, the queue and what is stuck. Exit code 1 if no runner is alive."""
    with open_database() as engine:
        alive, queue = runners.living_runners(engine), rows.count_open_rows(engine)
        later = rows.find_later(engine)
        nobody = "" if alive else runners.why_none_is_alive(engine)
        # sensors of a platform that does not run have no ticks, and are not stuck
        stuck = [one for one in find_stuck(engine, Settings.load()) if alive or one.kind != "sensor"]
    if as_json:
        print_object(
            {
                "runners": [_runner_fields(one) for one in alive],
                "queued": queue[rows.Status.QUEUED],
                "running": queue[rows.Status.RUNNING],
                "later": None if later is None else {"queued": later[0], "until": later[1].isoformat()},
                "stuck": [one.problem for one in stuck],
            }
        )
    else:
        if alive:
            lines = [(r.name, f"{r.busy} of {r.slots}", f"{r.started_at:%F %T} UTC") for r in alive]
            print_table(("runner", "busy slots", "since"), lines)
        for runner in alive:
            if runner.load_error:
                click.echo(f"{runner.name}: the code location does not load: {runner.load_error}")
        click.echo(f"{queue[rows.Status.QUEUED]} waiting, {queue[rows.Status.RUNNING]} running")
        if later is not None:
            count, first = later
            click.echo(
                f"{count} more wait for a time of their own, such as tries after a failure, until {first:%F %T} UTC"
            )
        for one in stuck:
            click.echo(f"stuck since {one.since:%F %T} UTC: {one.problem}")
    if not alive:
        raise PlatformError(nobody)


def _runner_fields(runner: runners.RunnerRecord) -> dict[str, Any]:
    return {
        "name": runner.name,
        "pid": runner.process.pid,
        "slots": runner.slots,
        "busy": runner.busy,
        "startedAt": runner.started_at.isoformat(),
        "loadError": runner.load_error,
    }


@command.command()
@click.argument("row", type=DatabaseId())
def release(row: int) -> None:
    """Free the stuck row of work ROW. Ends its process, closes its run and the row; what it should do is begun anew."""
    settings = Settings.load()
    log_to_terminal(settings)
    with open_database(settings) as engine, open_instance(settings) as instance:
        from platform_defs.runner.release import release_row

        released = release_row(instance, engine, row)
        settle_dead_executions(engine, datetime.now(UTC))
        end_left_statements(engine, Sources(engine, settings.sources), datetime.now(UTC))
    wake.wake(settings.home)
    click.echo(f"row of work {row} ({released.kind}) is released; its run {released.run_id} is closed")


def _serve() -> None:
    settings = Settings.load()
    log_to_terminal(settings)
    # The listener comes before Dagster's files: a second runner, which it refuses, must change nothing in the home.
    with open_database(settings) as engine, wake.open_listener(settings.home) as listener:
        from platform_defs import dagster_instance

        dagster_instance.prepare(settings)
        with open_instance(settings) as instance:
            from platform_defs.runner.runner import Runner

            Runner(settings, engine, instance).run(listener)
    # An interpreter with Dagster loaded frees its memory for seconds on a busy machine, and would be killed meanwhile.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def log_to_terminal(settings: Settings) -> None:
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(message)s")
    # It tells at every look at the schema which database it is.
    logging.getLogger("alembic").setLevel(logging.WARNING)


@contextmanager
def open_instance(settings: Settings) -> Iterator["DagsterInstance"]:
    """Dagster's instance, and until it is closed the environment that it and the processes it starts read.

    Dagster is imported here and not at the top, because that takes seconds.
    """
    from platform_defs import dagster_instance

    if not (settings.dagster_home / "dagster.yaml").exists():
        raise PlatformError(f"nothing has run in {settings.home} yet; `platform up` starts the platform")
    variables = dagster_instance.environment(settings)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with _opened(settings) as instance:
            yield instance
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _opened(settings: Settings) -> "DagsterInstance":
    from dagster import DagsterError, DagsterInstance

    try:
        return DagsterInstance.get()
    except DagsterError as error:
        raise PlatformError(
            f"Dagster's instance in {settings.dagster_home} does not open; set PLATFORM_DB_URL and"
            " PLATFORM_DAGSTER_DB_URL as the `platform up` has them that runs there"
        ) from error

"""`platform selfcheck`: the selfcheck job as a row of work, recorded in the Dagster instance like any other run."""

import json
import os
from typing import Any

import click
from sqlalchemy import Engine

from platform_defs.connections import open_database
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.work import rows, runners
from platform_defs.work.wake import wake

# The run's events are recorded in the instance. Printed to the terminal as well, they would bury the answer.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="What was found, as JSON.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for the run.")
def command(as_json: bool, timeout: float) -> None:
    """Run the selfcheck job, through the runner if one is alive, and say what it found."""
    settings = Settings.load()
    with open_database(settings) as engine:
        if wake(settings.home) or runners.living_runners(engine):
            run_id, found = _run_by_runner(settings, engine, timeout)
        else:
            run_id, found = _run_in_this_process(settings)
    if as_json:
        click.echo(json.dumps({"run_id": run_id, "found": found}, sort_keys=True))
        return
    click.echo(f"selfcheck succeeded (run {run_id})")
    for part, values in found.items():
        click.echo(f"  {part}: " + ", ".join(f"{name} {value}" for name, value in values.items()))


def _run_by_runner(settings: Settings, engine: Engine, timeout: float) -> tuple[str, dict[str, Any]]:
    row = rows.enqueue(engine, "selfcheck", {})
    wake(settings.home)
    done = rows.wait(engine, row.id, timeout)
    if done.status is not rows.Status.SUCCEEDED:
        raise PlatformError(f"selfcheck {done.status.lower()} (run {done.run_id}): {done.error}")
    return done.run_id, done.result


def _run_in_this_process(settings: Settings) -> tuple[str, dict[str, Any]]:
    from platform_defs import dagster_instance

    # `platform up` has written its own dagster.yaml, perhaps from other settings than this shell's: leave that alone
    if not (settings.home / "up.json").exists():
        dagster_instance.prepare(settings)
    os.environ.update(dagster_instance.environment(settings))

    from dagster import DagsterInstance

    from platform_defs.definitions import defs

    with DagsterInstance.get() as instance:
        result = defs.resolve_job_def("selfcheck").execute_in_process(
            run_config=QUIET, instance=instance, raise_on_error=False
        )
    if not result.success:
        failures = [event for event in result.all_events if event.is_step_failure]
        reason = failures[0].step_failure_data.error_display_string if failures else "see the run in the UI"
        raise PlatformError(f"selfcheck failed (run {result.run_id}): {reason.splitlines()[0]}")
    found = {
        "/".join(event.asset_key.path): {
            name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()
        }
        for event in result.get_asset_materialization_events()
        if event.asset_key
    }
    return result.run_id, found

"""Wakes the runner for what a command has queued, and says so if there is none: the command would look successful."""

import click
from sqlalchemy import Engine

from platform_defs.settings import Settings
from platform_defs.work.runners import living_runners
from platform_defs.work.wake import wake


def wake_runner(engine: Engine) -> None:
    wake(Settings.load().home)
    if not living_runners(engine):
        click.echo(
            "platform: no runner is alive, so this waits until `platform up` or `platform runner` starts one,"
            " or Dagster's daemon takes its place",
            err=True,
        )

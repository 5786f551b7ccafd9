"""Wakes the runner for what a command has queued, and says so if there is none: the command would look successful."""

import click
from sqlalchemy import Engine

from platform_defs.settings import Settings
from platform_defs.work.runners import living_runners, why_none_is_alive
from platform_defs.work.wake import wake


def wake_runner(engine: Engine) -> None:
    wake(Settings.load().home)
    if not living_runners(engine):
        why = why_none_is_alive(engine)
        click.echo(f"platform: {why}. Until then this waits, unless Dagster's daemon takes its place", err=True)

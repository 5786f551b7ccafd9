"""`platform demo`: writes the demo into a running platform, says what to try, and takes it away."""

import time
from dataclasses import replace
from zoneinfo import ZoneInfo

import click

from platform_defs.commands.runner import open_instance
from platform_defs.connections import open_database
from platform_defs.home import require_platform
from platform_defs.settings import Settings

# How long a newcomer waits for the printed lines to be true. On a quiet machine that takes 15 s, most of which pass
# until the sensor of lineage's tables ticks and the code server has loaded them.
PATIENCE_S = 20.0
NO_DEMO = "the platform runs without the demo; stop it and run `platform up --demo`"


@click.group("demo")
def command() -> None:
    """A small shop that shows all four systems: write it, see what to try, take it away."""


@command.command("load")
@click.option("--quiet", is_flag=True, help="Do not print what to try.")
def load(quiet: bool) -> None:
    """Write the demo, or what an interrupted attempt left out. `platform up` does this by itself."""
    # imported here: `platform demo --help` needs none of it
    from platform_defs.demo.doors import open_api, running_platform
    from platform_defs.demo.guide import shown_dashboard
    from platform_defs.demo.state import DemoError, DemoStatus, exclusive, read_state, write_state
    from platform_defs.demo.writing import await_story, write_demo
    from platform_defs.supervisor.demo import demo_webhook

    began = time.monotonic()
    settings = Settings.load()
    require_platform(settings)
    platform = running_platform(settings.home)
    # before the lock, which would make a folder in a home that never had a demo
    if read_state(settings.home) is None:
        raise DemoError(NO_DEMO)
    with exclusive(settings.home):
        state = read_state(settings.home)
        if state is None or state.status is DemoStatus.REMOVED:
            raise DemoError(NO_DEMO)
        if state.status is DemoStatus.BEGUN:
            with open_database(settings, pool_size=2) as engine, open_api(platform) as api:
                webhook = demo_webhook(settings.home)
                zone = ZoneInfo(settings.zone)
                written = write_demo(engine, api, settings.home, state, webhook=webhook, zone=zone)
                dashboard, give_up_at = shown_dashboard(settings), began + PATIENCE_S
                if await_story(api, platform.ui, written, dashboard=dashboard, give_up_at=give_up_at):
                    write_state(settings.home, replace(written, settled=True))
    if not quiet:
        _print_guide(settings)


@command.command("show")
def show() -> None:
    """Say what to open, click and try."""
    settings = Settings.load()
    require_platform(settings)
    _print_guide(settings)


@command.command("remove")
def remove() -> None:
    """Take the demo away, with its key; what you wrote beside it stays. A later start brings it back only if asked."""
    from platform_defs.connections import open_stores
    from platform_defs.demo.removal import batches_of_nobody, observed_by_nobody, remove_demo, waited_for_by_others
    from platform_defs.demo.state import DemoState, DemoStatus, exclusive, read_state, write_state
    from platform_defs.supervisor.home import read_up

    settings = Settings.load()
    require_platform(settings)
    # before the lock, which would make a folder in a home that never had a demo
    known = read_state(settings.home)
    if known is None:
        click.echo(f"there is no demo in {settings.home}")
        return
    with exclusive(settings.home):
        state = read_state(settings.home) or known
        was_removed = state.status is DemoStatus.REMOVED
        # first: a start in between must not write it again
        write_state(settings.home, DemoState(DemoStatus.REMOVED, state.born))
        with open_stores(settings) as stores:
            remove_demo(stores, settings.home)
            op_times = batches_of_nobody(stores.engine, state.born)
            observed, waited_for = observed_by_nobody(stores), waited_for_by_others(stores.engine)
        with open_instance(settings) as instance:
            from platform_defs.demo.dagster_traces import remove_traces

            left = remove_traces(
                instance,
                op_times,
                observed=observed,
                waited_for=waited_for,
                born=state.born,
                is_up=read_up(settings.home) is not None,
            )
    if was_removed:
        click.echo("the demo had been removed already; what an interrupted removal may have left is gone too")
    else:
        click.echo("the demo is removed, and its key is revoked; `platform keys issue` makes one of your own")
    if left:
        runs = "1 run has" if left == 1 else f"{left} runs have"
        click.echo(f"{runs} not ended yet; once that is so, `platform demo remove` takes away what is left of it")


def _print_guide(settings: Settings) -> None:
    from platform_defs.demo.doors import open_api, running_platform
    from platform_defs.demo.guide import guide_lines, shown_dashboard
    from platform_defs.demo.state import DemoError, DemoStatus, read_state
    from platform_defs.demo.writing import is_story_told

    state = read_state(settings.home)
    if state is not None and state.status is DemoStatus.BEGUN:
        raise DemoError(
            "the demo is not written yet: a running platform prints these lines when it is, usually some seconds after"
            " Ready, and the next `platform up` completes one that was stopped meanwhile"
        )
    if state is None or state.status is not DemoStatus.WRITTEN:
        raise DemoError(f"there is no demo in {settings.home}; `platform up --demo` brings one")
    platform, settled = running_platform(settings.home), state.settled
    if not settled:
        with open_api(platform) as api:
            settled = is_story_told(api, platform.ui, state, dashboard=shown_dashboard(settings))
    for label, text in guide_lines(platform, state, settings, settled=settled):
        click.echo(f"{label:<8} {text}")

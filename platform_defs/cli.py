"""The `platform` command: imports only the subcommand that is called, and reports errors in one readable line."""

import importlib
import logging
import os
import sys
import traceback
from typing import Any

import click
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError

# Name -> (module, help). The help stands here so that `platform --help` need not import any of the modules.
COMMANDS = {
    "chains": ("platform_defs.commands.chains", "Load, list and start chains; stop and repair their runs."),
    "db": ("platform_defs.commands.db", "Migrate the database and see where it stands."),
    "demo": ("platform_defs.commands.demo", "Write the demo, see what to try, take it away."),
    "ingest": (
        "platform_defs.commands.ingest.harvesting",
        "Harvest, backfill and update sources; see and repair what is open.",
    ),
    "keys": ("platform_defs.commands.access.keys", "Issue, list and revoke API keys."),
    "lineage": (
        "platform_defs.commands.lineage.sink",
        "Follow the lineage of tables and columns; repair asset graphs.",
    ),
    "models": ("platform_defs.commands.arrivals.models", "Load and publish models and KPIs; read what they computed."),
    "registry": ("platform_defs.commands.ingest.registry", "Load, compare and show the sources that ingest harvests."),
    "runner": (
        "platform_defs.commands.runner",
        "Run the runner, which executes runs; see its queue and what is stuck.",
    ),
    "selfcheck": ("platform_defs.commands.selfcheck", "Ask every part whether it answers, and how fast."),
    "serve": ("platform_defs.commands.serve", "Run the API process."),
    "tenants": ("platform_defs.commands.access.tenants", "Register and list tenants."),
    "up": ("platform_defs.commands.up", "Start everything: code server, UI, daemon, runner and API."),
    "webhooks": (
        "platform_defs.commands.arrivals.webhooks",
        "Subscribe to KPIs, see deliveries, send dead letters again.",
    ),
}

# set by the shell's completion, whose script Click writes
COMPLETION = "_PLATFORM_COMPLETE"


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # Click knows no commands of a group that imports them when they are called.
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the trace of an error.")
@click.version_option(package_name="platform-defs")
def cli(debug: bool) -> None:
    """A Dagster data platform: ingest, lineage, arrivals and chains."""


def main() -> None:
    """Exit 0 only on success; an expected error is one line on stderr and exit 1."""
    debug = "--debug" in sys.argv
    arguments: dict[str, Any] = {"args": [a for a in sys.argv[1:] if a != "--debug"], "standalone_mode": False}
    # The driver's retries end in an error, which is shown below.
    logging.getLogger("neo4j").setLevel(logging.CRITICAL)
    if logging.lastResort is not None:
        logging.lastResort.addFilter(_is_no_interrupt)
    try:
        _warn_of_unknown_variables()
        sys.exit(cli.main(**arguments) or 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (PlatformError, SQLAlchemyError, OSError) as error:
        if debug:
            traceback.print_exc()
        # imported here: `platform --help` needs no database
        from platform_defs.connections import explain

        click.echo(f"platform: {explain(error)}", err=True)
        sys.exit(1)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """False for the trace that SQLAlchemy logs if Ctrl-C comes while it closes a connection."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt | SystemExit))


def _warn_of_unknown_variables() -> None:
    # imported here, and only if something is set: `platform --help` needs no settings
    if not any(name.startswith("PLATFORM_") for name in os.environ):
        return
    if COMPLETION in os.environ:
        return  # a shell asks at every TAB, in the midst of a line that somebody writes
    from platform_defs.settings import SUPERVISED, unknown_variables

    if SUPERVISED in os.environ:
        return  # `platform up` has said it
    for name, nearest in unknown_variables(os.environ).items():
        advice = f"did you mean {nearest}?" if nearest else "the README lists all settings"
        click.echo(f"platform: {name} is not a setting; {advice}", err=True)

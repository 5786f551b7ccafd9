"""What somebody who sees the platform for the first time may open, click and try."""

import os
import shlex
import sysconfig
from pathlib import Path

from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.demo import story
from platform_defs.demo.doors import RunningPlatform
from platform_defs.demo.lineage import DASHBOARD, TABLES
from platform_defs.demo.shop import WRONG_ORDER, Calendar
from platform_defs.demo.state import DemoState
from platform_defs.lineage.tables.keys import Table, asset_key_of
from platform_defs.settings import Settings

_UNSETTLED = (
    "some runs of the shop have not ended yet, or the UI has not loaded its tables: if a line does not do what it says,"
    " wait a moment and reload"
)


def guide_lines(
    platform: RunningPlatform, state: DemoState, settings: Settings, *, settled: bool
) -> list[tuple[str, str]]:
    """Five lines, each with what it is about. Followed in their order, each does what it says.

    If they are not `settled`, because what they say has not been seen to be true, a sixth line says so.
    """
    batch = Calendar(state.born).wrong
    ui, api = platform.ui, platform.api
    command = platform_command(settings)
    # not with their values: these lines stand in logs, and a URL may hold a password
    needed = [f"PLATFORM_{name}" for name in _elsewhere(settings)]
    where = f" (with {' and '.join(needed)} as for this start)" if needed else ""
    return [
        (
            "1 open",
            f"the failed batch {batch}, which is red; View logs says why it failed:"
            f" {ui}/assets/models/{story.SALES}?view=partitions&partition={batch}",
        ),
        (
            "2 click",
            f"Launch Run on {ui}/locations/platform/jobs/chain_{story.CORRECT}/playground (it corrects order"
            f" {WRONG_ORDER}), then on the page of line 1: Materialize, Failed and missing, Launch 1 run",
        ),
        (
            "3 retry",
            f"the failed node of the chain {story.CLOSE}, which then goes on: curl -X POST"
            f" {api}/api/v1/runs/{state.chain_run}/nodes/{story.FAILED_NODE}:retry"
            f' -H "Authorization: Bearer {platform.key}"',
        ),
        (
            "4 see",
            f"the tables that the shop's dashboard is made from{_where_they_are(settings, ui, command)}"
            f" and what the subscriber of its revenue was told{where}: {command} webhooks deliveries",
        ),
        ("5 end", f"take the demo away, and nothing of yours{where}: {command} demo remove"),
        *([] if settled else [("note", _UNSETTLED)]),
    ]


def _where_they_are(settings: Settings, ui: str, command: str) -> str:
    """The graph of the dashboard in the UI, or the command that says the same where the UI shows no lineage."""
    key = shown_dashboard(settings)
    if key is None:
        return f" (`{command} lineage upstream {TABLES[DASHBOARD].name} --tenant {DEMO_TENANT.id}`)"
    return (
        f": {ui}/assets/{'/'.join(key)}?view=lineage&lineageScope=upstream&lineageDepth=5"
        " (a double click on its empty background shows them all)"
    )


def shown_dashboard(settings: Settings) -> list[str] | None:
    """The asset of the shop's dashboard; None if the UI is not to show the lineage of its tenant."""
    observed = settings.lineage_observe and DEMO_TENANT.id not in settings.unobserved_tenants
    if not (observed and settings.lineage_tables):
        return None
    board = TABLES[DASHBOARD]
    return asset_key_of(Table(DEMO_TENANT.id, board.namespace, board.name))


def _elsewhere(settings: Settings) -> list[str]:
    """The settings that name a store outside of the home."""
    return ["DB_URL"] * bool(settings.db_url) + ["GRAPH_URL"] * (settings.graph_url != "embedded")


def platform_command(settings: Settings) -> str:
    """The command as somebody types it in another terminal, in this folder, where the home is not set."""
    path, home = Path(sysconfig.get_path("scripts"), "platform"), settings.home
    variable = (
        ""
        if home == Path(Settings.model_fields["home"].default).absolute()
        else f"PLATFORM_HOME={shlex.quote(str(home))} "
    )
    try:
        return variable + shlex.quote(str(path.relative_to(Path.cwd())))
    except ValueError:
        is_found = str(path.parent) in os.environ.get("PATH", "").split(os.pathsep)
        return variable + ("platform" if is_found else shlex.quote(str(path)))

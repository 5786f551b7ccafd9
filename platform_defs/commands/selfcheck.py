"""`platform selfcheck`: which parts of the platform answer, how fast, and whether a run executes."""

import json
from dataclasses import asdict

import click

from platform_defs.commands.tables import print_table
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings


@click.command()
@click.option("--json", "as_json", is_flag=True, help="What was found, as one JSON object.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the run. Each other part has a third of them to answer.",
)
def command(as_json: bool, timeout: float) -> None:
    """Ask database, graph, API, UI, daemon and runner whether they answer. Exit code 0 only if all of them do.

    The runner executes the job `selfcheck`, whose run the UI shows.
    """
    # imported here: `platform selfcheck --help` needs none of it
    from platform_defs.home import require_platform
    from platform_defs.supervisor.checkup import check_platform

    settings = Settings.load()
    require_platform(settings)
    found = check_platform(settings, timeout_s=timeout)
    if as_json:
        fields = {"home": str(settings.home), "ok": found.ok, **asdict(found)}
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        rows = [
            (part.name, "ok" if part.ok else "FAILED", "" if part.ms is None else f"{part.ms:g} ms", part.detail)
            for part in found.parts
        ]
        print_table(("part", "state", "answered in", "detail"), rows)
    broken = ", ".join(part.name for part in found.parts if not part.ok)
    if not found.running:
        first = f" once these are mended: {broken}" if broken else ""
        raise PlatformError(f"nothing is running in {settings.home}; `platform up` starts it{first}")
    if broken:
        raise PlatformError(f"selfcheck failed: {broken}")

"""`platform registry`: load sources from a file or a preset, see what is stored and what a file would change."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from platform_defs.commands.tables import json_option, print_rows
from platform_defs.connections import open_database
from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import RegistryFileError
from platform_defs.ingest.ledger.queue import count_plans_under_way
from platform_defs.ingest.registry import loading
from platform_defs.ingest.registry.file import RegistryFile, read_file
from platform_defs.ingest.registry.presets import PREFIX, preset_names, read_preset
from platform_defs.ingest.registry.show import describe_source, list_sources
from platform_defs.ingest.registry.values import parse_instant


@click.group("registry")
def command() -> None:
    """Load, compare and show the sources that ingest harvests."""


def _read(file: str, code: str | None = None, base_url: str | None = None, start: str | None = None) -> RegistryFile:
    if file.startswith(PREFIX):
        contents = read_file(read_preset(file.removeprefix(PREFIX)), file)
    else:
        contents = read_file(Path(file).read_bytes(), file)
    try:
        begin = None if start is None else parse_instant(start)
    except ValueError:
        raise click.BadParameter(f"expected a day such as 2024-01-01, got {start!r}", param_hint="--start") from None
    return contents.with_changes(code=code, base_url=base_url, start=begin)


def _print_changes(changes: list[loading.Change], as_json: bool) -> None:
    if as_json:
        print_rows(map(_change_fields, changes), as_json=True, nothing="")
        return
    for change in changes:
        click.echo(str(change))
    if not changes:
        click.echo("nothing changes")


def _change_fields(change: loading.Change) -> dict[str, Any]:
    return {
        "change": str(change.kind),
        "table": change.table.name,
        "key": list(change.key),
        "columns": {name: {"before": before, "after": after} for name, (before, after) in change.columns.items()},
    }


def _under_way(engine: Engine, changes: list[loading.Change]) -> list[str]:
    """What goes on as if nothing had changed, and how it is begun anew: a wrong address is asked to the end."""
    lines = []
    for (code, endpoint, operation), count in count_plans_under_way(
        engine, {change.key[0] for change in changes}
    ).items():
        kind = operation.lower()
        what = f"{kind} {'bucket' if kind == 'update' else 'window'}{'' if count == 1 else 's'}"
        of = f"{code} {endpoint}" + ("" if operation == Operation.HARVEST else f" --operation {kind}")
        lines.append(
            f"{code}/{endpoint}: {count} {what} under way {'goes' if count == 1 else 'go'} on with what held before; to"
            f" begin anew run `platform ingest cancel {of} --all`, then `platform ingest run {of}`"
        )
    return lines


@command.command("load")
@click.argument("file", metavar="FILE|preset:NAME")
@click.option("--code", help="Store the file's source under this code.")
@click.option("--base-url", help="Ask the source at this address.")
@click.option("--start", help="First day of its windows, such as 2024-01-01.")
@json_option
def load(file: str, code: str | None, base_url: str | None, start: str | None, as_json: bool) -> None:
    """Store the sources of FILE. A file with a problem is refused as a whole; loading it again changes nothing."""
    try:
        contents = _read(file, code, base_url, start)
        with open_database() as engine:
            changes = loading.load(engine, contents, now=datetime.now(UTC))
            under_way = _under_way(engine, changes)
    except RegistryFileError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        raise click.exceptions.Exit(1) from None
    _print_changes(changes, as_json)
    for told in under_way:
        click.echo(told, err=True)


@command.command("diff")
@click.argument("file", metavar="FILE|preset:NAME")
@json_option
def diff(file: str, as_json: bool) -> None:
    """Show what loading FILE would change."""
    try:
        contents = _read(file)
        with open_database() as engine:
            changes = loading.diff(engine, contents, now=datetime.now(UTC))
    except RegistryFileError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        raise click.exceptions.Exit(1) from None
    _print_changes(changes, as_json)


@command.command("base-url")
@click.argument("code")
@click.argument("url")
@json_option
def base_url(code: str, url: str, as_json: bool) -> None:
    """Ask source CODE at URL from now on. The paths of its endpoints are appended; plain http is permitted there."""
    with open_database() as engine:
        changes = loading.set_base_url(engine, code, url, now=datetime.now(UTC))
        under_way = _under_way(engine, changes)
    _print_changes(changes, as_json)
    for told in under_way:
        click.echo(told, err=True)


@command.command("show")
@click.argument("code")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(code: str, as_json: bool) -> None:
    """Show source CODE as it compiles now. Each endpoint and operation, with the origin of each value."""
    with open_database() as engine:
        found = describe_source(engine, code, datetime.now(UTC))
    click.echo(json.dumps(found.as_json(), ensure_ascii=False, indent=2) if as_json else found.as_text())


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List sources and their endpoints. Also the presets that can be loaded."""
    with open_database() as engine:
        sources = list_sources(engine, datetime.now(UTC))
    presets = ", ".join(PREFIX + name for name in preset_names())
    print_rows(sources, as_json=as_json, nothing=f"no sources yet; load a file or one of {presets}")

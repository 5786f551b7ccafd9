"""`platform lineage`: prints a tenant's graph, rebuilds it, prunes tombstones, lists and retries dead letters."""

import sys
from datetime import UTC, datetime
from typing import Any

import click

from platform_defs.access.tenants import MAX_ID
from platform_defs.commands.lineage import queries
from platform_defs.commands.tables import DatabaseId, json_option, print_object, print_rows, result_option
from platform_defs.connections import open_database, open_stores
from platform_defs.errors import PlatformError
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letter_retry import retry_letter
from platform_defs.lineage.intake.dead_letters import DeadLetter, LetterStatus
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.upkeep.retention import prune_tombstones
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant

PROGRESS_EVERY = 1000
NO_OPEN_LETTER = "no refused event is open"
NUMBER = DatabaseId()
tenant_option = click.option("--tenant", "tenant_id", type=NUMBER, required=True, metavar="ID", help="The tenant's id.")


@click.group("lineage")
def command() -> None:
    """Follow the lineage of tables and columns; print and rebuild asset graphs; list and retry refused events."""


for _command in queries.COMMANDS:
    command.add_command(_command)


@command.command()
@queries.tenant_option
def graph(tenant_id: int | None) -> None:
    """Print the tenant's whole asset graph. Sorted JSON lines, the same text from both graph stores."""
    with open_stores() as stores:
        tenant = queries.require_tenant(stores, tenant_id)
        for line in graph_lines(stores.graph.for_tenant(tenant.id)):
            click.echo(line)


@command.command()
@tenant_option
@result_option
def rebuild(tenant_id: int, as_json: bool) -> None:
    """Rebuild the tenant's graph from its stored events. Nodes and edges that no event explains are removed."""
    with open_stores() as stores:
        tenant = queries.require_tenant(stores, tenant_id)
        oldest = raw_events.oldest_time(stores.engine, tenant_id)
        if oldest is None:
            click.echo("no events are stored: the graph will be empty", err=True)
        else:
            click.echo(f"events are stored from {oldest:%F %T} UTC on: what is older cannot be rebuilt", err=True)
        report = rebuild_tenant(stores.engine, stores.graph, tenant, progress=_print_progress)
        if as_json:
            print_object({"events": report.events, "removed": report.removed, "oldest_event": oldest})
            return
        click.echo(f"rebuilt from {report.events} events, removed {report.removed} nodes and edges")


@command.command()
@result_option
def prune(as_json: bool) -> None:
    """Forget old tombstones and aliases of every tenant. PLATFORM_LINEAGE_TOMBSTONE_DAYS says how old."""
    with open_stores() as stores:
        removed = prune_tombstones(
            stores.engine, stores.graph, stores.settings.lineage_tombstone_days, datetime.now(UTC)
        )
    if as_json:
        print_object({"removed": removed})
        return
    click.echo(f"removed {removed} tombstones and aliases")


@command.group("dead-letters")
def letters() -> None:
    """Events that were refused, with the reason."""


@letters.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that were accepted on a later try.")
@click.option("--limit", type=NUMBER, default=100, show_default=True, help="At most so many, the newest first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with the payload.")
def list_(everything: bool, limit: int, as_json: bool) -> None:
    """List refused events, the newest first."""
    with open_database() as engine:
        found = dead_letters.list_letters(engine, status=None if everything else LetterStatus.OPEN, limit=limit)
    rows = [_letter_fields(letter) if as_json else _readable_fields(letter) for letter in found]
    print_rows(rows, as_json=as_json, nothing="no event was refused" if everything else NO_OPEN_LETTER)


@letters.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that are open.")
@json_option
def retry(ids: tuple[int, ...], everything: bool, as_json: bool) -> None:
    """Try refused events again, as the source that sent them. Exit code 1 if one is refused again."""
    if bool(ids) == everything:
        raise click.UsageError("name the ids to try again, or --all")
    refused = 0
    with open_stores() as stores:
        found = (
            dead_letters.list_letters(stores.engine, limit=sys.maxsize)
            if everything
            else dead_letters.find_letters(stores.engine, [id for id in ids if abs(id) <= MAX_ID])
        )
        missing = sorted(set(ids) - {letter.id for letter in found})
        if missing:
            raise PlatformError(
                f"there is no dead letter {missing[0]}; `platform lineage dead-letters list --all` shows them"
            )
        for letter in found:
            reason = retry_letter(stores.engine, stores.graph, letter)
            refused += reason is not None
            if as_json:
                print_object({"id": letter.id, "accepted": reason is None, "reason": reason})
            else:
                click.echo(f"{letter.id}  {'accepted' if reason is None else reason}")
        if not found:
            click.echo(NO_OPEN_LETTER, err=True)
    if refused:
        raise click.exceptions.Exit(1)


def _letter_fields(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "time": letter.created_at.isoformat(),
        "source": letter.source,
        "sourceType": letter.source_type,
        "tenantId": letter.tenant_id,
        "status": letter.status,
        "retries": letter.retry_count,
        "reason": letter.reason,
        "payload": letter.payload,
    }


def _readable_fields(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "time": f"{letter.created_at:%F %T}",
        "source": letter.source,
        "tenant": letter.tenant_id,
        "status": letter.status.lower(),
        "retries": letter.retry_count,
        "reason": letter.reason,
    }


def _print_progress(done: int) -> None:
    if done % PROGRESS_EVERY == 0:
        click.echo(f"{done} events", err=True)

"""`platform lineage search|upstream|downstream|runs`: questions to a tenant's graph and to its stored events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from platform_defs.access.errors import TenantError
from platform_defs.access.tenants import Tenant, find_tenant, list_tenants
from platform_defs.commands.tables import DatabaseId, limit_option, print_rows
from platform_defs.connections import Stores, open_stores
from platform_defs.lineage.errors import AmbiguousName
from platform_defs.lineage.query.drawing import FORMS, draw, printable
from platform_defs.lineage.query.names import resolve, search
from platform_defs.lineage.query.runs import TableRun, runs_of
from platform_defs.lineage.query.walk import MAX_DEPTH, walk

# an ambiguous name lists so many of its meanings
MEANINGS_SHOWN = 50

tenant_option = click.option(
    *("--tenant", "tenant_id"),
    type=DatabaseId(),
    metavar="ID",
    help="The tenant's id; needed if there are several.",
)
_namespace = click.option("--namespace", metavar="NS", help="Only tables of this namespace.")


def _form_options(*forms: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(function: Callable[..., None]) -> Callable[..., None]:
        choice = click.option(
            "--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help="How it is printed."
        )
        short = click.option("--json", "form", flag_value="json", help="The same as --format json.")
        return choice(short(function))

    return add


def _walk_options(function: Callable[..., None]) -> Callable[..., None]:
    """The name to begin with, and the options that `upstream` and `downstream` share."""
    for add in (
        _form_options(*FORMS),
        tenant_option,
        _namespace,
        click.option(
            "--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="At most so many names."
        ),
        click.option(
            "--depth", type=click.IntRange(1, MAX_DEPTH), default=5, show_default=True, help="Steps from the table."
        ),
        click.argument("name", metavar="TABLE[.COLUMN]"),
    ):
        function = add(function)
    return function


def require_tenant(stores: Stores, tenant_id: int | None) -> Tenant:
    """The tenant of the option, or the only one on record."""
    if tenant_id is not None:
        tenant = find_tenant(stores.engine, tenant_id)
        if tenant is None:
            raise TenantError("--tenant", f"tenant {tenant_id} is not on record; {_known(stores)}")
        return tenant
    known = list_tenants(stores.engine)
    if len(known) != 1:
        raise TenantError("--tenant", f"name a tenant by its id; {_known(stores)}")
    return known[0]


def _known(stores: Stores) -> str:
    known = [f"{tenant.id} ({tenant.code})" for tenant in list_tenants(stores.engine)]
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"known: {shown}" if known else "there is none, `platform tenants add` puts one on record"


@contextmanager
def _listing_meanings() -> Iterator[None]:
    """An ambiguous name ends in the usual line, and below it in the names that it could mean."""
    try:
        yield
    except AmbiguousName as error:
        click.echo(f"platform: {error}", err=True)
        for name, namespace in error.meanings[:MEANINGS_SHOWN]:
            click.echo(f"  {printable(name)}  [{printable(namespace)}]", err=True)
        if len(error.meanings) > MEANINGS_SHOWN:
            click.echo(f"  and {len(error.meanings) - MEANINGS_SHOWN} more", err=True)
        raise click.exceptions.Exit(1) from None


@click.command("search")
@click.argument("text")
@tenant_option
@limit_option(50, 10_000)
@_form_options("table", "json")
def search_command(text: str, tenant_id: int | None, limit: int, form: str) -> None:
    """Find tables and columns whose name contains TEXT. Capital and small letters are the same."""
    with open_stores() as stores:
        store = stores.graph.for_tenant(require_tenant(stores, tenant_id).id)
        found = search(store, text, limit=limit + 1)
    as_json = form == "json"
    shown: Callable[[str], str] = str if as_json else printable
    rows = [
        {"kind": asset.kind, "name": shown(asset.name), "namespace": shown(asset.namespace)} for asset in found[:limit]
    ]
    print_rows(rows, as_json=as_json, nothing=f"no table or column has {text!r} in its name")
    if len(found) > limit:
        click.echo(f"there are more than {limit}; say more of the name, or raise --limit", err=True)


@click.command("upstream")
@_walk_options
def upstream(name: str, **options: Any) -> None:
    """Show what a table or column is made from, as a tree.

    The name is a qualified one such as mart.orders or mart.orders.amount, or the end of one.
    """
    _walk(name, upstream=True, **options)


@click.command("downstream")
@_walk_options
def downstream(name: str, **options: Any) -> None:
    """Show what is made from a table or column, as a tree.

    The name is a qualified one such as raw.orders or raw.orders.id, or the end of one.
    """
    _walk(name, upstream=False, **options)


def _walk(
    name: str, *, upstream: bool, depth: int, limit: int, namespace: str | None, tenant_id: int | None, form: str
) -> None:
    with open_stores() as stores, _listing_meanings():
        store = stores.graph.for_tenant(require_tenant(stores, tenant_id).id)
        root = resolve(store, name, namespace=namespace)
        found = walk(store, root, upstream=upstream, depth=depth, limit=limit)
    click.echo(draw(found, form))
    if found.truncated:
        click.echo(f"something is left out; raise --limit (now {limit}), or begin elsewhere", err=True)


@click.command("runs")
@click.argument("name", metavar="TABLE")
@limit_option(20, 200)
@_namespace
@tenant_option
@_form_options("table", "json")
def runs(name: str, limit: int, namespace: str | None, tenant_id: int | None, form: str) -> None:
    """List the newest runs that read or wrote TABLE. Found in the stored events of the jobs that do so now."""
    with open_stores() as stores, _listing_meanings():
        store = stores.graph.for_tenant(require_tenant(stores, tenant_id).id)
        table = resolve(store, name, namespace=namespace, columns=False)
        found = runs_of(stores.engine, store, table, limit=limit)
    as_json = form == "json"
    rows = [_json_run(run) if as_json else _readable_run(run) for run in found.runs]
    print_rows(rows, as_json=as_json, nothing=f"no stored event of a run names {printable(table.name)}")
    if not found.complete:
        click.echo(
            "not all events of its jobs were looked at; there may be more runs, and more to say of these", err=True
        )


def _json_run(run: TableRun) -> dict[str, Any]:
    return {
        "began": run.began.isoformat(),
        "ended": run.ended.isoformat() if run.ended else None,
        "state": run.state,
        "job": run.job,
        "runId": run.run_id,
        "wrote": run.wrote,
        "read": run.read,
    }


def _readable_run(run: TableRun) -> dict[str, Any]:
    done = [word for word, yes in (("written", run.wrote), ("read", run.read)) if yes]
    return {
        "began": f"{run.began:%F %T}",
        "ended": f"{run.ended:%F %T}" if run.ended else None,
        "state": run.state.lower(),
        "table was": " and ".join(done),
        "job": printable(run.job),
        "run": run.run_id,
    }


COMMANDS: tuple[click.Command, ...] = (search_command, upstream, downstream, runs)

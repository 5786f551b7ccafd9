"""`platform tenants`: put tenants on record and list them."""

import click

from platform_defs.access.tenants import Tenant, add_tenant, list_tenants
from platform_defs.commands.tables import DatabaseId, json_option, print_object, print_rows, result_option
from platform_defs.connections import open_database


@click.group("tenants")
def command() -> None:
    """Register and list tenants."""


@command.command("add")
@click.argument("tenant_id", metavar="ID", type=DatabaseId())
@click.argument("code")
@click.argument("name")
@result_option
def add(tenant_id: int, code: str, name: str, as_json: bool) -> None:
    """Put a tenant on record; adding it again changes nothing."""
    with open_database() as engine:
        new = add_tenant(engine, Tenant(tenant_id, code, name))
    if as_json:
        print_object({"id": tenant_id, "code": code, "name": name, "added": new})
        return
    click.echo(f"tenant {tenant_id} {'added' if new else 'is already on record'}")


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the tenants on record."""
    with open_database() as engine:
        tenants = list_tenants(engine)
    rows = [{"id": tenant.id, "code": tenant.code, "name": tenant.name} for tenant in tenants]
    print_rows(rows, as_json=as_json, nothing="no tenants yet; `platform tenants add` puts one on record")

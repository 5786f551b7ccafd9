"""`platform tenants`: put tenants on record and list them."""

import json
from dataclasses import asdict

import click

from platform_defs.access.tenants import Tenant, add_tenant, list_tenants
from platform_defs.connections import open_database


@click.group("tenants")
def command() -> None:
    """Register and list tenants."""


@command.command("add")
@click.argument("tenant_id", metavar="ID", type=int)
@click.argument("code")
@click.argument("name")
def add(tenant_id: int, code: str, name: str) -> None:
    """Put a tenant on record; adding it again changes nothing."""
    with open_database() as engine:
        new = add_tenant(engine, Tenant(tenant_id, code, name))
    click.echo(f"tenant {tenant_id} {'added' if new else 'is already on record'}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(as_json: bool) -> None:
    """List the tenants on record."""
    with open_database() as engine:
        tenants = list_tenants(engine)
    for tenant in tenants:
        line = json.dumps(asdict(tenant), ensure_ascii=False)
        click.echo(line if as_json else f"{tenant.id}\t{tenant.code}\t{tenant.name}")

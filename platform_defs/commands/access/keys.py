"""`platform keys`: issue, list and revoke API keys."""

import click

from platform_defs.access.keys import StoredKey, issue_key, list_keys, refused_uses, revoke_key
from platform_defs.access.principal import SCOPES, SourceType
from platform_defs.commands.tables import DatabaseId, json_option, print_object, print_rows, result_option
from platform_defs.connections import open_database

_SCOPES_HELP = "Comma list of: " + ", ".join(SCOPES) + "."


@click.group("keys")
def command() -> None:
    """Issue, list and revoke API keys."""


@command.command("issue")
@click.argument("name")
@click.option("--scopes", required=True, help=_SCOPES_HELP)
@click.option(
    "--source-type",
    type=click.Choice([kind.value for kind in SourceType]),
    help="What posts lineage with it. gravitino: each event names its tenant; compute: all belong to --tenant.",
)
@click.option("--tenant", "tenant_id", type=DatabaseId(), help="Id of the tenant that the key belongs to.")
def issue(name: str, scopes: str, source_type: str | None, tenant_id: int | None) -> None:
    """Issue a key. It is printed once, alone, and kept only as a hash."""
    kind = None if source_type is None else SourceType(source_type)
    with open_database() as engine:
        key = issue_key(engine, name, scopes.split(","), source_type=kind, tenant_id=tenant_id)
    for refused in refused_uses(scopes.split(","), source_type=kind, tenant_id=tenant_id):
        click.echo(f"platform: {refused}", err=True)
    click.echo(key)


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List keys by their public id; the keys themselves are not kept."""
    with open_database() as engine:
        keys = list_keys(engine)
    rows = [_fields(key) if as_json else _readable_fields(key) for key in keys]
    print_rows(rows, as_json=as_json, nothing="no keys yet; `platform keys issue` issues one")


@command.command("revoke")
@click.argument("name_or_id", metavar="ID|NAME")
@result_option
def revoke(name_or_id: str, as_json: bool) -> None:
    """Revoke one key by its public id, or all keys of a name. Running API processes notice within seconds."""
    with open_database() as engine:
        revoked = revoke_key(engine, name_or_id)
    if as_json:
        print_object({"revoked": revoked})
        return
    click.echo(f"revoked: {', '.join(revoked)}" if revoked else "already revoked")


def _readable_fields(key: StoredKey) -> dict[str, object]:
    return {
        "id": key.public_id,
        "name": key.name,
        "state": "valid" if key.revoked_at is None else f"revoked {key.revoked_at:%F %T}",
        "source": key.source_type,
        "tenant": None if key.tenant is None else f"{key.tenant.id} {key.tenant.code}",
        "created": f"{key.created_at:%F %T}",
        "scopes": sorted(key.scopes),
    }


def _fields(key: StoredKey) -> dict[str, object]:
    return {
        "id": key.public_id,
        "name": key.name,
        "scopes": ",".join(sorted(key.scopes)),
        "sourceType": key.source_type,
        "tenant": None if key.tenant is None else key.tenant.id,
        "createdAt": key.created_at.isoformat(),
        "revokedAt": None if key.revoked_at is None else key.revoked_at.isoformat(),
    }

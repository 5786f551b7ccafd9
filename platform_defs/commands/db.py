"""`platform db`: migrate the database, see where it stands, write a new migration."""

import json
from dataclasses import asdict

import click

from platform_defs.connections import open_database
from platform_defs.home import make_home
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.upgrade import upgrade_stores

as_json_option = click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")


@click.group()
def command() -> None:
    """Migrate the database and see where it stands."""


@command.command()
@as_json_option
def upgrade(as_json: bool) -> None:
    """Apply missing migrations. Also creates the database, where that is allowed, and the graph's constraints."""
    settings = Settings.load()
    if not settings.db_url:
        make_home(settings.home)
    report = upgrade_stores(settings)
    if report.created and not as_json:
        click.echo(f"created database {settings.database_url.database}")
    if as_json:
        click.echo(json.dumps(asdict(report)))
    elif report.applied:
        click.echo(f"applied {', '.join(report.applied)}")
    else:
        click.echo(f"up to date at {report.revision}")


@command.command()
@as_json_option
def status(as_json: bool) -> None:
    """Show the database's revision and what it lacks."""
    with open_database(pool_size=1, any_schema=True) as engine:
        pending = migrate.missing_revisions(engine)
        revision = migrate.current_revision(engine)
        url = engine.url.render_as_string(hide_password=True)
    if as_json:
        click.echo(json.dumps({"database": url, "revision": revision, "pending": pending}))
    else:
        state = f"lacks {', '.join(pending)}: run `platform db upgrade`" if pending else "is up to date"
        click.echo(f"{url} is at {f'revision {revision}' if revision else 'no revision'} and {state}")


@command.command()
@click.argument("message")
def revision(message: str) -> None:
    """Write a migration after a change of a table (for developers).

    It compares platform_defs/store/tables/ with a scratch SQLite database to which all migrations were applied. Read
    the migration: a rename looks like a drop and an add. A migration must be able to resume, because MySQL commits DDL
    statement by statement. `make lint` then formats it.
    """
    click.echo(migrate.new_revision(message))

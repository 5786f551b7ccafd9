"""`platform db`: migrate the database, see where it stands, write a new migration."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
from sqlalchemy import Engine

from platform_defs import stores
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine

as_json_option = click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")


@contextmanager
def _engine() -> Iterator[Engine]:
    engine = open_engine(Settings.load().database_url, pool_size=1)
    try:
        yield engine
    finally:
        engine.dispose()


@click.group()
def command() -> None:
    """Migrate the database and see where it stands."""


@command.command()
@as_json_option
def upgrade(as_json: bool) -> None:
    """Apply the migrations that are missing and the graph's constraints; creates the database where that is allowed."""
    done = stores.upgrade(Settings.load())
    if as_json:
        click.echo(json.dumps(asdict(done)))
    elif done.applied:
        click.echo(f"applied {', '.join(done.applied)}")
    else:
        click.echo(f"up to date at {done.revision}")


@command.command()
@as_json_option
def status(as_json: bool) -> None:
    """Show the database's revision and what it lacks."""
    with _engine() as engine:
        pending = migrate.missing_revisions(engine)
        revision = migrate.current_revision(engine)
        url = engine.url.render_as_string(hide_password=True)
    if as_json:
        click.echo(json.dumps({"database": url, "revision": revision, "pending": pending}))
    else:
        lacks = f"lacks {', '.join(pending)}: run `platform db upgrade`" if pending else "is up to date"
        click.echo(f"{url} at {revision or 'no revision'} {lacks}")


@command.command()
@click.argument("message")
def revision(message: str) -> None:
    """Write a migration for what the tables have and the migrations have not (for developers).

    Compares platform_defs/store/*.py with a scratch SQLite database that all migrations built. Read what it wrote:
    a rename looks like a drop and an add. It must be resumable, because DDL on MySQL commits statement by statement.
    `make lint` then formats it.
    """
    click.echo(migrate.new_revision(message))

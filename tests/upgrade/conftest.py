"""A home and a database as the version before left them, migrated by this version, on every store."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, Table, inspect, select
from sqlalchemy.engine import URL

from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.text import graph_lines
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables import metadata
from tests.conftest import STORES, dropped_databases, new_database

DUMP = Path(__file__).parent / "version_before"
TENANTS = (1, 7)


@dataclass(frozen=True)
class OldHome:
    """A home that the version before has written; its database has been migrated."""

    path: Path
    engine: Engine
    keys: dict[str, str] = field(repr=False)

    def graph(self, tenant: int) -> list[str]:
        return list(graph_lines(EmbeddedGraph.on(self.engine).for_tenant(tenant)))


def read_lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (DUMP / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(params=STORES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldHome]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "webhook.key").write_text((DUMP / "webhook.key").read_text())
    with closing(sqlite3.connect(home / "platform.db")) as connection:
        connection.executescript((DUMP / "database.sql").read_text(encoding="utf-8"))
    written = URL.create("sqlite", database=str(home / "platform.db"))
    url, names = (written, []) if request.param == "sqlite" else new_database(request.param, tmp_path)
    engine = open_engine(url)
    if request.param != "sqlite":
        _copy(written, engine)
    assert migrate.upgrade(engine) == migrate.known_revisions()[3:]
    yield OldHome(home, engine, json.loads((DUMP / "keys.json").read_text()))
    engine.dispose()
    dropped_databases(request.param, names)


def _copy(written: URL, engine: Engine) -> None:
    """The same rows on a server, in tables of the same migrations."""
    source = open_engine(written)
    with engine.begin() as connection:
        command.upgrade(migrate._config(connection), str(migrate.current_revision(source)))
    for table in metadata.sorted_tables:
        if inspect(source).has_table(table.name) and (rows := _read_rows(source, table)):
            with engine.begin() as connection:
                connection.execute(table.insert(), rows)
    source.dispose()


def _read_rows(source: Engine, table: Table) -> list[dict[str, Any]]:
    known = [table.c[column["name"]] for column in inspect(source).get_columns(table.name) if column["name"] in table.c]
    with source.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(select(*known))]

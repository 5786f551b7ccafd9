"""The selfcheck: a round trip to the database and one to the graph, and which database a process of the API serves."""

import hashlib
import sqlite3
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import URL, Engine, select

from platform_defs.errors import GraphError
from platform_defs.graph.model import DeleteNodes, Node, UpsertNodes
from platform_defs.graph.port import Graph
from platform_defs.store import migrate
from platform_defs.store.engine import ATTEMPTS, read
from platform_defs.store.tables import metadata
from platform_defs.store.types import utc_now

# No source can have this tenant: real ids are positive.
SELFCHECK_TENANT = 0
# With this header /healthz says in this field whether the API serves the database of that digest. It never says which
# database it serves, because anybody may ask.
DATABASE_HEADER, SERVES_DATABASE = "X-Platform-Database", "servesDatabase"


@dataclass(frozen=True)
class DatabaseReport:
    server: str
    revision: str
    tables: int
    clock_skew_s: float
    round_trip_ms: float


@dataclass(frozen=True)
class GraphReport:
    store: str
    round_trip_ms: float


def check_database(engine: Engine, *, attempts: int = ATTEMPTS) -> DatabaseReport:
    """Asks the database in the same way as all other code, and raises the same errors."""
    migrate.require_current(engine, attempts=attempts)
    started = time.perf_counter()
    moment: datetime = read(
        engine, lambda connection: connection.execute(select(utc_now())).scalar_one(), attempts=attempts
    )
    elapsed = time.perf_counter() - started
    return DatabaseReport(
        server=_server_version(engine),
        revision=migrate.current_revision(engine, attempts=attempts) or "none",
        tables=len(metadata.tables),
        clock_skew_s=round((moment - datetime.now(UTC)).total_seconds(), 3),
        round_trip_ms=round(elapsed * 1000, 2),
    )


def check_graph(graph: Graph) -> GraphReport:
    """Writes a node, reads it back and deletes it. Tenant and id are its own, so that no real data is touched."""
    store = graph.for_tenant(SELFCHECK_TENANT)
    probe = Node(f"tag:selfcheck-{uuid.uuid4().hex}", frozenset({"Tag"}), {"name": "selfcheck"})
    started = time.perf_counter()
    store.apply([UpsertNodes([probe])])
    found = store.nodes([probe.id]).get(probe.id)
    store.apply([DeleteNodes([probe.id])])
    elapsed = time.perf_counter() - started
    if found is None or dict(found.props) != dict(probe.props):
        raise GraphError(f"the graph did not return what was written to it: {found!r}")
    return GraphReport(store=type(graph).__name__, round_trip_ms=round(elapsed * 1000, 2))


def database_digest(url: URL) -> str:
    """Tells databases apart; the user and the options of a connection do not count."""
    if url.get_backend_name() == "sqlite":
        place = str(Path(url.database or "").resolve())
    else:
        place = f"{url.query.get('unix_socket') or f'{url.host}:{url.port or 3306}'}/{url.database}"
    return hashlib.sha256(f"{url.get_backend_name()}:{place}".encode()).hexdigest()


def _server_version(engine: Engine) -> str:
    dialect = engine.dialect
    version = ".".join(map(str, getattr(dialect, "server_version_info", None) or ()))
    if dialect.name == "sqlite":
        return f"SQLite {sqlite3.sqlite_version}"
    return f"{'MariaDB' if getattr(dialect, 'is_mariadb', False) else 'MySQL'} {version}"

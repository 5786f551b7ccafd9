"""Where the benchmarks of lineage run: an API process on SQLite with the embedded graph, or on MySQL and Neo4j."""

import random
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from platform_defs.access.keys import issue_key
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.graph.open import open_graph
from platform_defs.lineage.sink.commit import CommitResult
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.api.serving import environment
from tests.e2e.serving import SERVE, Serving
from tests.needs import require

TENANTS = 4


@dataclass(frozen=True)
class Place:
    env: dict[str, str]
    url: URL
    tenant: Tenant
    key: str
    other_keys: tuple[str, ...]
    ports: dict[str, int]


@contextmanager
def embedded() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        url = URL.create("sqlite", database=f"{folder}/platform.db")
        with _prepared(url, Path(folder), "embedded") as place:
            yield place


@contextmanager
def servers() -> Iterator[Place]:
    server = make_url(require("mysql")).set(drivername="mysql+mysqlconnector", database=None)
    server = server.update_query_dict({"ssl_disabled": "true"})
    name = f"platform_bench_{uuid.uuid4().hex[:12]}"
    _administer(server, f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            _prepared(server.set(database=name), Path(folder), require("neo4j")) as place,
        ):
            yield place
    finally:
        _administer(server, f"DROP DATABASE {name}")


def _administer(server: URL, statement: str) -> None:
    """On a connection of its own, because the server may be restarted in between."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@contextmanager
def _prepared(url: URL, home: Path, graph_url: str) -> Iterator[Place]:
    number = random.SystemRandom().randrange(10**6, 10**12)
    tenants = [Tenant(id, f"t{id}", f"Bench {id}") for id in range(number, number + TENANTS)]
    engine = open_engine(url)
    graph = open_graph(Settings(graph_url=graph_url), engine)
    try:
        migrate.upgrade(engine)
        graph.ensure_schema()
        for one in tenants:
            add_tenant(engine, one)
        key, *other_keys = (issue_key(engine, one.code, {"lineage:write"}, tenant_id=one.id) for one in tenants)
        env = environment(url, home, graph_url=graph_url, lineage_tenant_rate="0")
        ports = {"MySQL": url.port or 3306} if url.host else {}
        if graph_url != "embedded":
            ports["Neo4j"] = urlsplit(graph_url).port or 7687
        yield Place(env, url, tenants[0], key, tuple(other_keys), ports)
        for one in tenants:
            graph.for_tenant(one.id).clear()
    finally:
        graph.close()
        engine.dispose()


@contextmanager
def serving(env: dict[str, str], code: str = SERVE, **settings: str) -> Iterator[Serving]:
    with tempfile.TemporaryDirectory() as folder:
        named = {f"PLATFORM_LINEAGE_{name.upper()}": value for name, value in settings.items()}
        running = Serving(env | named, Path(folder), code)
        try:
            yield running
        finally:
            running.stop()


class NoCommitter:
    """Accepts everything and writes nothing, to measure the cost of the rest of the request."""

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        return CommitResult()

    def flush(self) -> None:
        """Nothing to write."""

    def withdraw(self, event: PreparedEvent) -> None:
        """Nothing to delete."""

    def close(self) -> None:
        """Nothing to close."""


def serve_nothing() -> None:
    """Runs `platform serve` with a sink that writes nothing."""
    from platform_defs.api.lineage import service
    from platform_defs.cli import main

    nothing = NoCommitter()
    service.EmbeddedCommitter = service.ParallelCommitter = lambda *stores: nothing  # type: ignore
    main()

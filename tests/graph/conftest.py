"""Every graph store in turn, and tenants of their own for each test: Neo4j is shared, so only these are cleaned."""

import random
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.neo4j import Neo4jGraph, Timeouts
from platform_defs.graph.port import Graph, GraphStore
from tests.needs import require
from tests.waiting import PATIENCE_S

needs = pytest.mark.needs
# Where a test is not about them, the limits of production must not fail it on a busy machine.
UNHURRIED = Timeouts(
    connect=PATIENCE_S, acquire=PATIENCE_S, transaction=PATIENCE_S, retry=PATIENCE_S, rehearsal=PATIENCE_S
)
EMBEDDED = (
    pytest.param("sqlite", id="embedded-sqlite"),
    pytest.param("mysql", id="embedded-mysql", marks=needs("mysql")),
    pytest.param("mariadb", id="embedded-mariadb", marks=needs("mariadb")),
)
GRAPHS = (*EMBEDDED, pytest.param("neo4j", id="neo4j", marks=needs("neo4j")))


@pytest.fixture(scope="session")
def open_neo4j() -> Iterator[Callable[[], Neo4jGraph]]:
    """One driver per session, opened when a test first asks for it."""
    opened: list[Neo4jGraph] = []

    def get() -> Neo4jGraph:
        if not opened:
            opened.append(Neo4jGraph(require("neo4j"), timeouts=UNHURRIED))
            opened[0].ensure_schema()
        return opened[0]

    yield get
    for graph in opened:
        graph.close()


@pytest.fixture
def neo4j(open_neo4j: Callable[[], Neo4jGraph]) -> Neo4jGraph:
    return open_neo4j()


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest, migrated: dict[str, Engine], open_neo4j: Callable[[], Neo4jGraph]) -> Graph:
    return open_neo4j() if request.param == "neo4j" else EmbeddedGraph.on(migrated[request.param])


@pytest.fixture
def new_tenant(graph: Graph) -> Iterator[Callable[[], GraphStore]]:
    stores: list[GraphStore] = []

    def create() -> GraphStore:
        stores.append(graph.for_tenant(random_tenant()))
        return stores[-1]

    yield create
    for store in stores:
        store.clear()


@pytest.fixture
def store(new_tenant: Callable[[], GraphStore]) -> GraphStore:
    return new_tenant()


def random_tenant() -> int:
    return random.SystemRandom().randrange(10**6, 2**63)

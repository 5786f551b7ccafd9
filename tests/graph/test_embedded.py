"""The embedded graph joins the caller's transaction and writes only what changes."""

from itertools import pairwise

import pytest
from sqlalchemy import Engine, event, func, select

from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.model import Edge, Node, Operation, UpsertEdges, UpsertNodes
from platform_defs.graph.open import open_graph
from platform_defs.settings import Settings
from platform_defs.store.tables.graph import graph_node
from tests.graph.conftest import random_tenant

BATCH: list[Operation] = [
    UpsertNodes([Node("a", {"Table"}), Node("b", {"Table"})]),
    UpsertEdges([Edge("HAS_TAG", "a", "b")]),
]


def test_a_rollback_of_the_caller_takes_the_graph_with_it(engine: Engine) -> None:
    one, two = random_tenant(), random_tenant()
    with engine.connect() as connection, connection.begin() as transaction:
        graph = EmbeddedGraph.in_transaction(connection)
        for tenant in (one, two):
            graph.for_tenant(tenant).apply(BATCH)
        assert len(list(graph.for_tenant(one).stream())) == 3
        transaction.rollback()
    assert list(EmbeddedGraph.on(engine).for_tenant(one).stream()) == []


def test_a_commit_of_the_caller_shows_the_graph_to_others(engine: Engine) -> None:
    tenant = random_tenant()
    with engine.begin() as connection:
        EmbeddedGraph.in_transaction(connection).for_tenant(tenant).apply(BATCH)
        connection.execute(graph_node.update().values(kind="Tag").where(graph_node.c.node_id == "a"))
    read = EmbeddedGraph.on(engine).for_tenant(tenant).nodes(["a", "b"])
    assert [sorted(read[id].labels) for id in "ab"] == [["Knowledge", "Tag"], ["Knowledge", "Table"]]


def test_a_batch_that_changes_nothing_writes_no_node_and_costs_a_fixed_number_of_statements(engine: Engine) -> None:
    store = EmbeddedGraph.on(engine).for_tenant(random_tenant())
    nodes = [Node(f"t{at:03}", {"Table"}, {"name": "n", "at": at}) for at in range(500)]
    edges = [Edge("HAS_TAG", node.id, "t000", {"k": 1}) for node in nodes]
    statements: list[str] = []

    def remember(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement.split()[0])

    event.listen(engine, "before_cursor_execute", remember)
    try:
        store.apply([UpsertNodes(nodes), UpsertEdges(edges)])
        words = [word for word in statements if word in ("SELECT", "INSERT", "UPDATE")]
        # SQLite gets fifty rows by a statement, so that one insert of many rows is several in a row
        first = [word for before, word in pairwise(["", *words]) if (before, word) != ("INSERT", "INSERT")]
        statements.clear()
        store.apply([UpsertNodes(nodes), UpsertEdges(edges)])
    finally:
        event.remove(engine, "before_cursor_execute", remember)
    assert first == ["SELECT", "INSERT", "SELECT", "SELECT", "SELECT", "INSERT", "SELECT"]
    assert [word for word in statements if word in ("SELECT", "INSERT", "UPDATE")] == ["SELECT", "SELECT", "SELECT"]


def test_a_changed_node_gets_a_new_time_of_update_and_keeps_that_of_creation(engine: Engine) -> None:
    store = EmbeddedGraph.on(engine).for_tenant(random_tenant())
    times = select(graph_node.c.created_at, graph_node.c.updated_at, func.count().over())
    store.apply([UpsertNodes([Node("t", {"Table"}, {"x": 1})])])
    with engine.connect() as connection:
        created, updated, _ = connection.execute(times).one()
    store.apply([UpsertNodes([Node("t", {"Table"}, {"x": 2})])])
    with engine.connect() as connection:
        created_then, updated_then, _ = connection.execute(times).one()
    assert created_then == created
    assert updated_then >= updated


def test_the_settings_choose_the_embedded_graph_by_default(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLATFORM_GRAPH_URL", raising=False)
    graph = open_graph(Settings.load(), engine)
    assert isinstance(graph, EmbeddedGraph)
    graph.ping()
    graph.close()

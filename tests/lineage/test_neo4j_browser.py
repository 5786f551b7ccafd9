"""The graph as a person sees it in Neo4j Browser: what docs/lineage.md says about it, asked with its own queries."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from neo4j import ManagedTransaction
from sqlalchemy import Engine

from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.graph.text import graph_lines
from platform_defs.graph.vocabulary import RESERVED_PROPERTIES
from tests.graph.conftest import UNHURRIED
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_sequences import ARRIVED, derived, dropped, renamed, said, table
from tests.lineage.wire import schema
from tests.needs import ROOT, require
from tests.pages import read_blocks

pytestmark = pytest.mark.needs("neo4j")
PAGE = "docs/lineage.md"
EXAMPLE = Path(ROOT, "docs/examples/lineage.json")


@pytest.fixture
def deliveries(migrated: dict[str, Engine]) -> Iterator[Deliveries]:
    graph = Neo4jGraph(require("neo4j"), timeouts=UNHURRIED)
    graph.ensure_schema()
    opened = Deliveries(migrated["sqlite"], graph)
    yield opened
    opened.close()
    graph.close()


def ask(deliveries: Deliveries, query: str, **parameters: Any) -> list[dict[str, Any]]:
    assert isinstance(deliveries.graph, Neo4jGraph)

    def work(transaction: ManagedTransaction) -> list[dict[str, Any]]:
        return [dict(record) for record in transaction.run(query, parameters, tenant=deliveries.tenant.id)]

    return deliveries.graph.read(work)


def test_the_queries_of_the_page_find_lineage_and_no_tombstones(deliveries: Deliveries) -> None:
    deliveries.deliver([Arrival(raw, ARRIVED) for raw in json.loads(EXAMPLE.read_text())])
    (block,) = [block for block in read_blocks(ROOT / PAGE, PAGE) if block.language == "cypher"]
    queries = block.text.replace("tenantId: 7", f"tenantId: {deliveries.tenant.id}").strip().rstrip(";").split(";\n")
    tables, columns, everything = (ask(deliveries, query) for query in queries)
    assert tables == [
        {"source": "raw.customers", "job": "daily_sales", "runs": 1},
        {"source": "raw.orders", "job": "daily_sales", "runs": 1},
    ]
    assert {tuple(node["qualifiedName"] for node in row["path"].nodes) for row in columns} == {
        ("mart.sales.total", "raw.orders.amount"),
        ("mart.sales.total", "raw.orders.amount", "shop.orders.cents"),
    }
    shown = [json.loads(line) for line in graph_lines(deliveries.graph.for_tenant(deliveries.tenant.id))]
    assert {str(row["asset"]["id"]) for row in everything} == {line["id"] for line in shown if "node" in line}


def test_nothing_is_hidden_that_the_page_does_not_name(deliveries: Deliveries) -> None:
    """After drops, renames and runs that say less: the page lists every label, edge type and property of the rest."""
    a, b = table("a", schema=schema("x", "y")), table("b", schema=schema("x"), columnLineage=derived("a", x="x", y="y"))
    for event in (
        said(1, reads=[a], writes=[b], sql="insert into b select x, y from a"),
        said(2, reads=[a], writes=[table("b", columnLineage=derived("a", x="x"))]),
        said(3, reads=[table("c")], writes=[table("d")], job="other"),
        renamed(4, "c", "e"),
        dropped(5, "b"),
    ):
        deliveries.deliver([event])
    page = Path(ROOT, PAGE).read_text().partition("## In Neo4j Browser")[2].partition("\n## ")[0]
    nodes = ask(
        deliveries, "MATCH (n {tenantId: $tenant}) RETURN labels(n) AS labels, toString(n.id) AS id, keys(n) AS keys"
    )
    edges = ask(deliveries, "MATCH (n {tenantId: $tenant})-[e]->() RETURN type(e) AS type, keys(e) AS keys")
    shown = [json.loads(line) for line in graph_lines(deliveries.graph.for_tenant(deliveries.tenant.id))]
    seen = {line["id"] for line in shown if "node" in line}
    hidden = [node for node in nodes if node["id"] not in seen]
    assert {tuple(sorted(node["labels"])) for node in hidden} == {("Knowledge", "Tombstone")}
    assert {node["id"].partition(":")[0] for node in hidden} == {"speaker", "table"}
    gone = {edge["type"] for edge in edges} - {line["edge"] for line in shown if "edge" in line}
    assert gone
    assert all(type.startswith("GONE_") for type in gone)
    names = {name for item in (*nodes, *edges) for name in item["keys"]}
    known = {name for line in shown for name in line["props"]} | RESERVED_PROPERTIES
    assert names - known <= set(re.findall(r"`(_\w+)`", page))
    assert all(f"`{word}" in page for word in ("Tombstone", "Knowledge", "GONE_", "speaker:", "createdAt", "updatedAt"))

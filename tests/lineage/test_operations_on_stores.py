"""The operation matrix of the seed on the real graph stores: what each operation leaves in the graph."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS
from tests.lineage.test_gravitino_operations import GLOSSARY, MATRIX, METRIC
from tests.lineage.test_merge_stores import new_tenant, open_graphs
from tests.lineage.wire import CATALOG, at_catalog, at_metalake, facet, gravitino, pairs, run_event, schema

__all__ = ["open_graphs"]  # the fixture

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ("amount", "day", "id", "sex", "state")
TABLE = at_catalog("sales.orders", gravitino=facet(description="old"), schema=schema(*COLUMNS))
TREE = {("Catalog", CATALOG), ("Schema", "sales"), ("Table", "orders"), *(("Column", name) for name in COLUMNS)}
METRIC_NODE = ("AtomicMetric", "gmv")
WORLD = {
    "create_table": TABLE,
    "register_metric": pairs("sales.gmv", **METRIC),
    **{f"create_{kind}": pairs("x", **values) for kind, (_, values, _) in GLOSSARY.items()},
}
TERMS = {
    kind: (label, str(values["name" if kind == "tag" else "code"])) for kind, (label, values, _) in GLOSSARY.items()
}
BELOW_SCHEMA = {node for node in TREE if node[0] in ("Schema", "Table", "Column")} | {METRIC_NODE}
BELOW_TABLE = {node for node in TREE if node[0] in ("Table", "Column")}

# operation -> what it removes from a graph that contains everything
GONE: dict[str, set[tuple[str, str]]] = {
    "drop_table": BELOW_TABLE,
    "drop_schema": BELOW_SCHEMA,
    "drop_catalog": BELOW_SCHEMA | TREE,
    "drop_metric": {METRIC_NODE},
    **{f"drop_{kind}": {term} for kind, term in TERMS.items()},
    # the event carries the resulting columns `id` and `note`
    "create_table": {("Column", name) for name in COLUMNS if name != "id"},
    "load_table": {("Column", name) for name in COLUMNS if name != "id"},
}
# operation -> edges and properties that are there afterwards
EDGES: dict[str, set[tuple[str, str, str]]] = {
    "create_table": {
        ("OWNS_CATALOG", "", CATALOG),
        ("HAS_SCHEMA", CATALOG, "sales"),
        ("HAS_TABLE", "sales", "orders"),
        ("HAS_COLUMN", "orders", "note"),
    },
    "create_schema": {("HAS_SCHEMA", CATALOG, "sales")},
    "create_catalog": {("OWNS_CATALOG", "", CATALOG)},
    "register_metric": {
        ("OWNS_METRIC", "", "gmv"),
        ("HAS_METRIC", "sales", "gmv"),
        ("MEASURES", "gmv", "amount"),
        ("FILTERS_BY", "gmv", "state"),
        ("FILTERS_BY", "gmv", "day"),
    },
    "associate_tags": {("HAS_TAG", "sex", "pii"), ("HAS_VALUE_DOMAIN", "sex", "SEX")},
    **{f"create_{kind}": {(f"OWNS_{kind.upper()}", "", term[1])} for kind, term in TERMS.items()},
}
for again, first in (
    ("load_table", "create_table"),
    ("load_schema", "create_schema"),
    ("alter_metric", "register_metric"),
):
    EDGES[again] = EDGES[first]
PROPS: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
    "alter_table": (("Table", "orders"), {"description": "new"}),
    "alter_schema": (("Schema", "sales"), {"description": "all sales", "properties": '{"k":"v"}'}),
    "alter_catalog": (("Catalog", CATALOG), {"provider": "hive", "catalogType": "RELATIONAL"}),
    "create_table": (("Table", "orders"), {"description": "all orders", "partitions": "day(ts)", "creator": "ann"}),
    "register_metric": (METRIC_NODE, {"unit": "CNY", "calculationFormula": "SUM(amount)"}),
    "create_valuedomain": (("ValueDomain", "SEX"), {"items": "1:m,2:f", "domainType": "ENUM"}),
    "alter_unit": (("Unit", "CNY"), {"symbol": "¥"}),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph]) -> Graph:
    return open_graphs(str(request.param))


@pytest.fixture
def tenant(graph: Graph) -> Iterator[Tenant]:
    made = new_tenant()
    yield made
    graph.for_tenant(made.id).clear()


def happen(graph: Graph, tenant: Tenant, minute: int, operation: str, about: dict[str, Any]) -> None:
    post(graph, tenant, minute, gravitino(operation, about), SourceType.GRAVITINO)


def post(graph: Graph, tenant: Tenant, minute: int, raw: dict[str, Any], source_type: SourceType) -> None:
    event = parse_event(raw | {"eventTime": (START + timedelta(minutes=minute)).isoformat()})
    stamped = EventFacts(version_of(event.event_time, event.payload_hash), facts_of(event, source_type).facts)
    assert not apply_events(graph.for_tenant(tenant.id), tenant, [stamped]).needs_rebuild


def name_of(node: Node) -> str:
    metric_or_term = node.props.get("code")
    return str(metric_or_term or node.props.get("name", ""))


def seen(store: GraphStore) -> tuple[dict[tuple[str, str], Node], set[tuple[str, str, str]]]:
    """The visible graph: nodes by label and name, edges by the names of their ends (the Tenant's name is empty)."""
    nodes: dict[str, tuple[tuple[str, str], Node]] = {}
    edges: list[Edge] = []
    for item in store.stream():
        if isinstance(item, Edge):
            edges.append(item)
        elif "Tombstone" not in item.labels:
            [label] = item.labels - {"Knowledge"}
            nodes[item.id] = ((label, "" if label == "Tenant" else name_of(item)), item)
    shown = {
        (edge.type, nodes[edge.from_id][0][1], nodes[edge.to_id][0][1])
        for edge in edges
        if not edge.type.startswith("GONE_")
    }
    return {key: node for key, node in nodes.values() if key[0] != "Tenant"}, shown


@pytest.mark.parametrize("operation", MATRIX)
def test_each_operation_leaves_its_mark_and_takes_nothing_else(operation: str, graph: Graph, tenant: Tenant) -> None:
    for minute, (made, about) in enumerate(WORLD.items()):
        happen(graph, tenant, minute, made, about)
    store = graph.for_tenant(tenant.id)
    before, _ = seen(store)
    assert before.keys() == TREE | {METRIC_NODE} | set(TERMS.values())

    happen(graph, tenant, 100, operation, MATRIX[operation][0])
    after, edges = seen(store)
    assert before.keys() - after.keys() == GONE.get(operation, set())
    assert EDGES.get(operation, set()) <= edges
    if operation in PROPS:
        key, props = PROPS[operation]
        assert props.items() <= dict(after[key].props).items()
    gone_names = {name for _, name in GONE.get(operation, set())}
    assert not [edge for edge in edges if gone_names & {edge[1], edge[2]}]


def test_the_table_covers_every_operation_by_what_it_changes() -> None:
    told = GONE.keys() | EDGES.keys() | PROPS.keys()
    repeats = {f"alter_{kind}" for kind in TERMS}
    assert MATRIX.keys() - told - repeats == set()


def with_properties(kind: str, properties: object) -> dict[str, Any]:
    match kind:
        case "table":
            return at_catalog("sales.orders", gravitino=facet(properties=properties))
        case "schema":
            return at_catalog("sales", gravitino=facet(properties=properties))
        case "catalog":
            return at_metalake(CATALOG, gravitino=facet(properties=properties))
    return pairs("x", name="pii", properties=json.dumps(properties))


@pytest.mark.parametrize("kind", ["table", "schema", "catalog", "tag"])
def test_a_map_of_properties_takes_away_what_it_lacks_whenever_older_ones_come(
    kind: str, graph: Graph, tenant: Tenant
) -> None:
    def entries() -> Any:
        nodes, _ = seen(graph.for_tenant(tenant.id))
        [node] = [node for (label, _), node in nodes.items() if label.lower() == kind]
        return json.loads(node.props.get("properties", "null"))

    def say(minute: int, operation: str, properties: object) -> None:
        happen(graph, tenant, minute, f"{operation}_{kind}", with_properties(kind, properties))

    say(1, "create", {"format": "orc", "owner": "ann"})
    assert entries() == {"format": "orc", "owner": "ann"}
    say(5, "alter", {"format": "parquet", "tier": "1"})
    say(3, "alter", {"format": "text", "late": "x"})
    say(6, "alter", None)
    assert entries() == {"format": "parquet", "tier": "1"}
    say(7, "alter", {})
    assert entries() is None
    say(8, "create", {"owner": "bob"})
    assert entries() == {"owner": "bob"}


def test_a_single_property_that_was_set_or_removed_leaves_the_others(graph: Graph, tenant: Tenant) -> None:
    def change(minute: int, *changes: dict[str, Any]) -> None:
        about = at_catalog("sales.orders", gravitino=facet(changes=list(changes)))
        happen(graph, tenant, minute, "alter_table", about)

    def entries() -> Any:
        nodes, _ = seen(graph.for_tenant(tenant.id))
        return json.loads(nodes["Table", "orders"].props["properties"])

    happen(graph, tenant, 1, "create_table", with_properties("table", {"format": "orc", "owner": "ann"}))
    change(3, {"type": "SET_PROPERTY", "propertyKey": "tier", "propertyValue": "1"})
    change(4, {"type": "REMOVE_PROPERTY", "propertyKey": "owner"})
    assert entries() == {"format": "orc", "tier": "1"}
    happen(graph, tenant, 2, "load_table", with_properties("table", {"owner": "bob", "size": "3"}))
    assert entries() == {"size": "3", "tier": "1"}


def test_a_deleted_column_lineage_takes_back_what_was_said_before_and_nothing_that_is_said_later(
    graph: Graph, tenant: Tenant
) -> None:
    def say(minute: int, name: str, **facets: Any) -> None:
        raw = run_event(inputs=[at_catalog("raw.orders")], outputs=[at_catalog(name, **facets)])
        post(graph, tenant, minute, raw, SourceType.COMPUTE)

    def derives(*pairs: tuple[str, str]) -> dict[str, Any]:
        source = {"namespace": at_catalog("")["namespace"], "name": "raw.orders"}
        return {"fields": {output: {"inputFields": [source | {"field": field}]} for output, field in pairs}}

    def shown() -> set[tuple[str, str]]:
        _, edges = seen(graph.for_tenant(tenant.id))
        return {(output, source) for type, output, source in edges if type == "DERIVES_FROM"}

    say(1, "sales.orders", schema=schema("a", "b", "c"), columnLineage=derives(("a", "x"), ("b", "y")))
    say(2, "sales.other", columnLineage=derives(("o", "x")))
    say(5, "sales.orders", columnLineage=derives(("c", "z")))
    assert shown() == {("a", "x"), ("b", "y"), ("c", "z"), ("o", "x")}
    say(4, "sales.orders", columnLineage={"_deleted": True})
    assert shown() == {("c", "z"), ("o", "x")}
    say(3, "sales.orders", columnLineage=derives(("a", "x"), ("new", "x")))
    assert shown() == {("c", "z"), ("o", "x")}
    rename = facet(changes=[{"type": "RENAME_TABLE", "newName": "orders2"}])
    happen(graph, tenant, 6, "alter_table", at_catalog("sales.orders", gravitino=rename))
    say(3, "sales.orders", columnLineage=derives(("b", "y")))
    assert shown() == {("c", "z"), ("o", "x")}
    say(7, "sales.orders2", columnLineage=derives(("a", "x")))
    assert shown() == {("a", "x"), ("c", "z"), ("o", "x")}

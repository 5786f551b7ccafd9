"""The operation matrix of the seed on the real graph stores: what each operation leaves in the graph."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.apply import Stamped, apply_events
from platform_defs.lineage.events import fingerprint, parse_event
from platform_defs.lineage.extract import facts_of
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS
from tests.lineage.test_gravitino_operations import GLOSSARY, MATRIX, METRIC
from tests.lineage.test_merge_stores import new_tenant, open_graphs
from tests.lineage.wire import CATALOG, at_catalog, facet, gravitino, pairs, schema

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

# operation -> what it takes from a world that has everything
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
    event = parse_event(gravitino(operation, about, eventTime=(START + timedelta(minutes=minute)).isoformat()))
    stamped = Stamped(
        version_of(event.event_time, fingerprint(tenant.id, event)), facts_of(event, SourceType.GRAVITINO).facts
    )
    assert not apply_events(graph.for_tenant(tenant.id), tenant, [stamped]).needs_rebuild


def name_of(node: Node) -> str:
    metric_or_term = node.props.get("code")
    return str(metric_or_term or node.props.get("name", ""))


def seen(store: GraphStore) -> tuple[dict[tuple[str, str], Node], set[tuple[str, str, str]]]:
    """What the graph shows: nodes by label and name, edges by the names of their ends (the Tenant's is empty)."""
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

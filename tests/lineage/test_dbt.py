"""Events that a real dbt-ol sent for a project with partly documented models (dbt/record.py): lineage stays the same.

dbt's schema facet lists documented columns only, a test of a model names the model as input, and structured logs use
other job names and send one event for every statement.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS
from tests.lineage.test_merge_stores import new_tenant, open_graphs

__all__ = ["open_graphs"]
FOLDER = Path(__file__).parent / "dbt"
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
RUN = COMMANDS[0]

DERIVED = {
    "orders.amount>stg_payments.amount",
    "orders.customer_id>stg_orders.customer_id",
    "orders.order_id>stg_orders.order_id",
    "orders.status>stg_orders.status",
    "stg_orders.customer_id>raw_orders.user_id",
    "stg_orders.day>raw_orders.day",
    "stg_orders.order_id>raw_orders.id",
    "stg_orders.status>raw_orders.status",
    "stg_payments.amount>raw_payments.cents",
    "stg_payments.id>raw_payments.id",
    "stg_payments.method>raw_payments.method",
    "stg_payments.order_id>raw_payments.order_id",
}
JOINED = {
    "raw_orders>stg_orders",
    "raw_payments>stg_payments",
    "stg_orders>orders",
    "stg_payments>orders",
}


def events_of(command: str) -> list[EventFacts]:
    events = [parse_event(json.loads(line)) for line in FOLDER.joinpath(f"{command}.jsonl").read_text().splitlines()]
    return [
        EventFacts(version_of(event.event_time, event.payload_hash), facts_of(event, SourceType.COMPUTE).facts)
        for event in events
    ]


def lineage(store: GraphStore) -> tuple[set[str], set[str]]:
    """DERIVES_FROM between columns, and the pairs of tables that a SQL node joins."""
    items = list(store.stream())
    nodes = [item for item in items if isinstance(item, Node)]
    names = {node.id: str(node.props.get("qualifiedName", "")).removeprefix("shop.main.") for node in nodes}
    edges = [item for item in items if isinstance(item, Edge)]
    derived = {f"{names[edge.from_id]}>{names[edge.to_id]}" for edge in edges if edge.type == "DERIVES_FROM"}
    inputs: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if edge.type == "INPUT_OF":
            inputs[edge.to_id].add(names[edge.from_id])
    outputs = [edge for edge in edges if edge.type == "OUTPUT_TO"]
    return derived, {f"{source}>{names[edge.to_id]}" for edge in outputs for source in inputs[edge.from_id]}


@pytest.fixture(params=GRAPHS)
def new_store(
    request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph]
) -> Iterator[Callable[[], tuple[Any, GraphStore]]]:
    made: list[GraphStore] = []

    def make() -> tuple[Any, GraphStore]:
        tenant = new_tenant()
        made.append(open_graphs(str(request.param)).for_tenant(tenant.id))
        return tenant, made[-1]

    yield make
    for store in made:
        store.clear()


def test_lineage_is_the_same_after_every_command_of_dbt(new_store: Callable[[], tuple[Any, GraphStore]]) -> None:
    tenant, store = new_store()
    for command in COMMANDS:
        for event in events_of(command):
            assert not apply_events(store, tenant, [event]).needs_rebuild
        assert lineage(store) == (DERIVED, JOINED), command


def test_lineage_is_the_same_in_every_order_in_which_commands_arrive(
    new_store: Callable[[], tuple[Any, GraphStore]],
) -> None:
    others = COMMANDS[1:]
    for order in (COMMANDS[::-1], *([*some, RUN] for some in list(permutations(others))[:3])):
        tenant, store = new_store()
        for command in order:
            assert not apply_events(store, tenant, events_of(command)).needs_rebuild
        assert lineage(store) == (DERIVED, JOINED), order

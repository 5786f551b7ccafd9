"""Indexes of a table as lists and single changes tell them: the same on every store, in whatever order they come."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import DEMO_TENANT, Tenant
from platform_defs.graph.port import Graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.upkeep.rebuild import rebuild
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS
from tests.lineage.merging import PlainStore
from tests.lineage.test_merge_stores import new_tenant, open_graphs
from tests.lineage.test_operations_on_stores import START, happen, seen
from tests.lineage.wire import at_catalog, facet, gravitino

__all__ = ["open_graphs"]  # the fixture


def add(name: str, *columns: str) -> dict[str, Any]:
    return {"type": "ADD_INDEX", "indexName": name, "indexType": "UNIQUE_KEY", "indexColumns": list(columns)}


def delete(name: str) -> dict[str, Any]:
    return {"type": "DELETE_INDEX", "indexName": name}


def orders(**facets: Any) -> dict[str, Any]:
    return at_catalog("sales.orders", gravitino=facet(**facets))


class Table:
    """One table, to which operations happen one after the other."""

    def __init__(self, graph: Graph, tenant: Tenant) -> None:
        self.graph, self.tenant = graph, tenant
        self._minute = 0

    def load(self, **facets: Any) -> None:
        self._happen("load_table", orders(**facets))

    def alter(self, *changes: dict[str, Any], **facets: Any) -> None:
        self._happen("alter_table", orders(changes=list(changes), **facets))

    @property
    def props(self) -> dict[str, Any]:
        nodes, _ = seen(self.graph.for_tenant(self.tenant.id))
        return dict(nodes["Table", "orders"].props)

    def indexes(self) -> tuple[str | None, dict[str, list[str]]]:
        """The list, and the single ones with their columns."""
        single = [json.loads(text) for name, text in self.props.items() if name.startswith("index_")]
        return self.props.get("indexes"), {index["name"]: index["columns"] for index in single}

    def _happen(self, operation: str, about: dict[str, Any]) -> None:
        self._minute += 1
        happen(self.graph, self.tenant, self._minute, operation, about)


@pytest.fixture(params=GRAPHS)
def table(request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph]) -> Iterator[Table]:
    made = Table(open_graphs(str(request.param)), new_tenant())
    yield made
    made.graph.for_tenant(made.tenant.id).clear()


def test_an_index_outlives_maps_of_properties_and_ends_when_it_is_deleted(table: Table) -> None:
    table.load(properties={"format": "orc"})
    table.alter(add("by day", "day"), add("by_id", "id"))
    both = {"by day": ["day"], "by_id": ["id"]}
    assert table.indexes() == (None, both)
    assert json.loads(table.props["properties"]) == {"format": "orc"}
    table.load(properties={"format": "text"})
    table.alter({"type": "UPDATE_COMMENT", "newComment": "new"}, properties={})
    assert table.indexes() == (None, both)
    table.alter(delete("by day"))
    assert table.indexes() == (None, {"by_id": ["id"]})
    table.alter(add("by day", "day", "id"))
    assert table.indexes() == (None, both | {"by day": ["day", "id"]})


def test_a_list_of_indexes_replaces_what_changes_had_told_and_a_deletion_ends_the_list(table: Table) -> None:
    table.alter(add("a", "x"))
    table.load(indexes="p(id), b(y)")
    assert table.indexes() == ("p(id), b(y)", {})
    table.alter(add("c", "z"))
    assert table.indexes() == ("p(id), b(y)", {"c": ["z"]})
    # without the list it is not known what the other ones are; with it, the deleted one would still be there
    table.alter(delete("b"))
    assert table.indexes() == (None, {"c": ["z"]})
    table.alter(delete("c"), indexes="p(id)")
    assert table.indexes() == ("p(id)", {})
    table.load(indexes=None)
    assert table.indexes() == (None, {})


ABOUT = [
    ("alter_table", orders(changes=[add("a", "x"), add("b", "x")])),
    ("load_table", orders(indexes="p(id)", properties={"k": "1"})),
    ("alter_table", orders(changes=[add("a", "y")])),
    ("alter_table", orders(changes=[delete("p"), add("c", "z")])),
    ("load_table", orders(properties={"k": "2"})),
]


def said(minute: int, operation: str, about: dict[str, Any]) -> EventFacts:
    event = parse_event(gravitino(operation, about) | {"eventTime": (START + timedelta(minutes=minute)).isoformat()})
    return EventFacts(version_of(event.event_time, event.payload_hash), facts_of(event, SourceType.GRAVITINO).facts)


def lines_of(*groups: list[EventFacts]) -> list[str]:
    store: Any = PlainStore(DEMO_TENANT.id)
    for group in groups:
        assert not apply_events(store, DEMO_TENANT, group).needs_rebuild
    return list(graph_lines(store))


def test_the_order_in_which_lists_and_changes_arrive_does_not_matter() -> None:
    events = [said(minute, *about) for minute, about in enumerate(ABOUT)]
    whole = lines_of(events)
    for order in permutations(events):
        assert lines_of(*([event] for event in order)) == whole
        assert lines_of(list(order[:2]), list(order[2:])) == whole


@pytest.mark.parametrize("keep", [False, True], ids=["by the operator", "after a late rename"])
def test_a_rebuild_leaves_the_indexes_as_they_are(table: Table, keep: bool, migrated: Any) -> None:
    events = [said(minute, *about) for minute, about in enumerate(ABOUT)]
    store = table.graph.for_tenant(table.tenant.id)
    for event in events:
        assert not apply_events(store, table.tenant, [event]).needs_rebuild
    before = list(graph_lines(store))
    assert table.indexes() == (None, {"a": ["y"], "c": ["z"]})
    report = rebuild(
        migrated["sqlite"],
        table.graph,
        table.tenant,
        read_events=lambda: iter(events),
        keep_unexplained=keep,
        progress=lambda done: None,
    )
    assert (report.events, report.removed) == (len(events), 0)
    assert list(graph_lines(store)) == before


def test_a_column_is_where_the_newest_change_has_put_it(table: Table) -> None:
    def move(column: str, position: str) -> dict[str, Any]:
        return {"type": "UPDATE_COLUMN_POSITION", "columnName": column, "position": position}

    def positions() -> dict[str, Any]:
        nodes, _ = seen(table.graph.for_tenant(table.tenant.id))
        return {name: node.props.get("position") for (label, name), node in nodes.items() if label == "Column"}

    table.alter({"type": "ADD_COLUMN", "columnName": "day", "dataType": "date", "position": "AFTER id"})
    table.alter(move("day", "FIRST"), move("id", "AFTER day"))
    assert positions() == {"day": "FIRST", "id": "AFTER day"}
    happen(table.graph, table.tenant, 0, "alter_table", orders(changes=[move("day", "AFTER note")]))
    assert positions() == {"day": "FIRST", "id": "AFTER day"}

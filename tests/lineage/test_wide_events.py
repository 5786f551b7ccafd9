"""A wide event costs what it says and not the product of it, and next to nothing when it is said again."""

import uuid
from typing import Any

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import Node, Operation, PatchNodes
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import Dropped, Ref
from platform_defs.lineage.merge.bounds import MAX_NAMED
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import Version
from tests.lineage.merging import PlainStore
from tests.lineage.reference import Reference

TENANT = Tenant(7, "seven", "Seven")
COLUMNS, INPUTS = 300, 40


def table(name: str, **facets: Any) -> dict[str, Any]:
    return {"namespace": "postgres://h", "name": f"d.s.{name}", "facets": facets}


def wide(at: int, columns: int = COLUMNS, inputs: int = INPUTS) -> EventFacts:
    """Each column derives from one column; and all of them from a column of each of the inputs."""
    names = [f"c{number}" for number in range(columns)]
    fields = {name: {"inputFields": [{**table("in0"), "field": name}]} for name in names}
    rows = [{**table(f"in{number}"), "field": "k"} for number in range(inputs)]
    schema = {"fields": [{"name": name, "type": "int"} for name in names]}
    raw = {
        "eventType": "COMPLETE",
        "eventTime": "2026-01-01T00:00:00Z",
        "producer": "p",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": "n", "name": "job", "facets": {"sql": {"query": "select 1"}}},
        "inputs": [table(f"in{number}") for number in range(inputs)],
        "outputs": [table("out", schema=schema, columnLineage={"fields": fields, "dataset": rows})],
    }
    return EventFacts(Version(f"{at:032x}"), facts_of(parse_event(raw), SourceType.COMPUTE, {}).facts)


class Watched(PlainStore):
    def __init__(self) -> None:
        super().__init__(TENANT.id)
        self.applied: list[Operation] = []

    def apply(self, operations: Any) -> Any:
        self.applied = list(operations)
        return super().apply(self.applied)


def test_the_whole_dataset_is_one_edge_for_each_input_and_not_one_for_each_column() -> None:
    store = Watched()
    apply_events(store, TENANT, [wide(1)])
    assert sum('"DERIVES_FROM"' in line for line in graph_lines(store)) == COLUMNS + INPUTS


def test_a_wide_event_that_is_said_again_touches_neither_columns_nor_inputs() -> None:
    store = Watched()
    # so many events that named a table are remembered one by one
    for at in range(1, MAX_NAMED + 2):
        apply_events(store, TENANT, [wide(at)])
    shown = list(graph_lines(store))
    store.reads.clear()
    apply_events(store, TENANT, [wide(90)])
    (patches,) = store.applied
    assert isinstance(patches, PatchNodes)
    # what these say of themselves has a newer time; the SQL gets its count besides
    kinds = sorted(patch.id.partition(":")[0] for patch in patches.patches)
    assert kinds == ["catalog", "speaker", "sql", "table"]
    assert len(store.reads) <= 3
    assert list(graph_lines(store)) == shown


def test_a_table_that_was_only_said_again_is_not_dropped_by_an_older_drop() -> None:
    """The time of the repetition is remembered by the job alone; the table and what is above it ask the job."""
    source = Ref("table", ("postgres://h", "d", "s", "in1"))
    for dropped in (source, source.parent):
        assert dropped is not None
        events = [wide(1, 2, 2), wide(5, 2, 2), EventFacts(Version(f"{3:032x}"), (Dropped(dropped),))]
        store = Watched()
        for event in events:
            assert not apply_events(store, TENANT, [event]).needs_rebuild
        assert source.id in {item.id for item in store.stream() if isinstance(item, Node) and "Table" in item.labels}
        assert list(graph_lines(store)) == Reference(TENANT, events).lines()

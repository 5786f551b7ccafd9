"""An engine's renames that arrive in order need no rebuild, however many runs of the jobs are not remembered any more.

The event of such a rename names the new table too, so that two tables become one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.graph.model import Node
from platform_defs.graph.port import GraphStore
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import Dropped, Exists, Ref, Renamed
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.codec import read_node
from platform_defs.lineage.merge.state import NEVER
from platform_defs.lineage.sink.apply import EventFacts, apply_events, prune_graph
from platform_defs.lineage.version import version_of
from tests.lineage.merging import PlainStore
from tests.lineage.reference import Reference
from tests.lineage.test_rebuild import rebuilt
from tests.lineage.wire import dataset, run_event, schema

HIVE = "hive://h:9083"
START = datetime(2026, 1, 1, tzinfo=UTC)


def said(
    minute: int, job: str, reads: Iterable[dict[str, Any]] = (), writes: Iterable[dict[str, Any]] = ()
) -> EventFacts:
    raw = run_event(
        eventTime=(START + timedelta(minutes=minute)).isoformat(),
        run={"runId": f"{job}-{minute}"},
        job={"namespace": "n", "name": job},
        inputs=list(reads),
        outputs=list(writes),
    )
    event = parse_event(raw)
    return EventFacts(version_of(event.event_time, event.payload_hash), facts_of(event, SourceType.COMPUTE).facts)


def table(name: str, **facets: Any) -> dict[str, Any]:
    return dataset(HIVE, f"s.{name}", **facets)


def derived(name: str, source: str) -> dict[str, Any]:
    fields = {"x": {"inputFields": [{"namespace": HIVE, "name": f"s.{source}", "field": "x"}]}}
    return table(name, schema=schema("x"), columnLineage={"fields": fields})


def filled(minute: int, name: str) -> EventFacts:
    return said(minute, "fill", [table("raw")], [derived(name, "raw")])


def renamed(minute: int, old: str, new: str, job: str = "ddl") -> EventFacts:
    facet = {"lifecycleStateChange": "RENAME", "previousIdentifier": {"namespace": HIVE, "name": f"s.{old}"}}
    return said(minute, job, writes=[table(new, lifecycleStateChange=facet)])


def dropped(minute: int, name: str) -> EventFacts:
    return said(minute, "ddl", writes=[table(name, lifecycleStateChange={"lifecycleStateChange": "DROP"})])


def dropped_by_catalog(minute: int, name: str) -> EventFacts:
    """As `dropped`, by an event that does not name the table otherwise."""
    event = dropped(minute, name)
    return replace(event, facts=tuple(fact for fact in event.facts if isinstance(fact, Dropped)))


def swapped(nights: int) -> list[EventFacts]:
    """Every night: fill orders_new, rename orders to orders_old, orders_new to orders, drop orders_old."""
    events = []
    for night in range(nights):
        minute = night * 1440
        events.append(filled(minute, "orders_new"))
        if night:
            events.append(renamed(minute + 1, "orders", "orders_old"))
        events.append(renamed(minute + 2, "orders_new", "orders"))
        if night:
            events.append(dropped(minute + 3, "orders_old"))
        events.append(said(minute + 9, "report", [table("orders")], [derived("board", "orders")]))
    return events


def needing_rebuild(store: PlainStore, events: Sequence[EventFacts]) -> list[int]:
    """The places of those events, merged one after the other, that needed a rebuild."""
    tenant = DEMO_TENANT
    return [at for at, one in enumerate(events) if apply_events(cast(GraphStore, store), tenant, [one]).needs_rebuild]


@pytest.mark.parametrize("runs", [10, 40])
def test_a_rename_after_many_runs_needs_no_rebuild(runs: int, migrated: dict[str, Engine]) -> None:
    events = [*(filled(minute, "a") for minute in range(runs)), renamed(100, "a", "b"), filled(101, "b")]
    store = PlainStore(DEMO_TENANT.id)
    assert needing_rebuild(store, events) == []
    merged = list(graph_lines(store))
    assert any('"qualifiedName": "s.b.x"' in line for line in merged)
    assert merged == rebuilt(migrated["sqlite"], store, events)


def test_a_table_that_is_swapped_every_night_never_needs_a_rebuild(migrated: dict[str, Engine]) -> None:
    events = swapped(30)
    store = PlainStore(DEMO_TENANT.id)
    assert needing_rebuild(store, events) == []
    assert list(graph_lines(store)) == rebuilt(migrated["sqlite"], store, events)


def test_a_swapped_table_is_true_where_hardly_any_run_is_remembered(
    migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_RUNS", 2)
    events = swapped(4)
    store = PlainStore(DEMO_TENANT.id)
    assert needing_rebuild(store, events) == []
    assert list(graph_lines(store)) == Reference(DEMO_TENANT, events).lines()


# What a run said that is forgotten by now, and what happens then. The run ended the lineage of a, because it named only
# another table, and has not done so if the two are one table.
UNLIKE: dict[str, tuple[list[EventFacts], list[EventFacts]]] = {
    "by that name": ([said(2, "fill", writes=[table("b")])], [renamed(41, "a", "b")]),
    "by another name, before a drop": (
        [said(2, "fill", writes=[table("c")]), dropped_by_catalog(3, "c")],
        [said(39, "other", writes=[table("c")]), renamed(40, "c", "b"), renamed(41, "a", "b")],
    ),
}


@pytest.mark.parametrize(("forgotten", "moves"), UNLIKE.values(), ids=UNLIKE)
def test_a_rename_needs_a_rebuild_where_a_forgotten_run_has_named_the_table_of_the_new_name(
    forgotten: list[EventFacts], moves: list[EventFacts]
) -> None:
    runs = [said(minute, "fill", writes=[table("a")]) for minute in range(10, 30)]
    events = [filled(1, "a"), *forgotten, *runs, *moves]
    assert needing_rebuild(PlainStore(DEMO_TENANT.id), events) == [len(events) - 1]
    assert any('"DERIVES_FROM"' in line for line in Reference(DEMO_TENANT, events).lines())


def moved(night: int, old: str, new: str) -> EventFacts:
    """A catalog's rename."""
    at = START + timedelta(days=night, minutes=5)
    return EventFacts(version_of(at, f"{old}>{new}"), (Renamed(table_ref(old), table_ref(new)),))


def table_ref(name: str) -> Ref:
    return next(fact.ref for fact in filled(0, name).facts if isinstance(fact, Exists) and fact.ref.name[-1] == name)


def swapped_in(night: int) -> list[EventFacts]:
    """Fill orders_new, let a catalog rename orders to orders_old and orders_new to orders, and drop orders_old."""
    minute = night * 1440
    events = [filled(minute, "orders_new")]
    if night:
        events.append(moved(night, "orders", "orders_old"))
    events.append(moved(night, "orders_new", "orders"))
    if night:
        events.append(dropped_by_catalog(minute + 6, "orders_old"))
    return [*events, said(minute + 9, "report", [table("orders")], [derived("board", "orders")])]


def replaced(night: int) -> list[EventFacts]:
    """Drop orders, and rename orders_new to it."""
    minute = night * 1440
    events = [filled(minute, "orders_new"), dropped(minute + 1, "orders"), renamed(minute + 2, "orders_new", "orders")]
    return [*events, said(minute + 9, "report", [table("orders")], [derived("board", "orders")])]


@pytest.mark.parametrize("told", [swapped_in, replaced])
def test_renames_of_names_that_stay_in_use_are_forgotten_too(
    told: Callable[[int], list[EventFacts]], migrated: dict[str, Engine]
) -> None:
    """As far as neither remembered statements nor a rebuild that applies stored events again need them."""
    store = PlainStore(DEMO_TENANT.id)
    events: list[EventFacts] = []
    remembered: dict[int, tuple[int, int]] = {}
    for night in range(51):
        events += told(night)
        assert needing_rebuild(store, told(night)) == []
        now = START + timedelta(days=night, hours=1)
        prune_graph(cast(GraphStore, store), now - timedelta(days=3), speakers_before=now - timedelta(days=12))
        nodes = [item for item in store.stream() if isinstance(item, Node) and item.id.startswith("table:")]
        facts = [read_node(node, NEVER) for node in nodes]
        remembered[night] = max(len(one.renames) for one in facts), max(len(one.incoming_renames) for one in facts)
    assert remembered[30] == remembered[50] == (8, 12)
    assert list(graph_lines(store)) == rebuilt(migrated["sqlite"], store, events)

"""The graph depends only on the set of events: any order, repetition and grouping of them gives the same graph."""

from itertools import permutations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import Node
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.facts import Dropped, Exists, Fact, Ref, Renamed
from platform_defs.lineage.merge.changes import whole_graph
from platform_defs.lineage.merge.rules import take
from platform_defs.lineage.merge.state import empty_state
from platform_defs.lineage.sink.apply import EventFacts, apply_events, stamp_facts
from platform_defs.lineage.version import Version
from tests.lineage.merging import (
    SCHEMAS,
    SQLS,
    TABLES,
    PlainStore,
    arrive,
    column,
    column_events,
    derived,
    derived_events,
    entry_events,
    examples,
    exists,
    histories,
    loaded,
    metric_events,
    moving_events,
    moving_wholes,
    plain_events,
    ran,
    registered,
    renames,
    underived,
)
from tests.lineage.reference import Reference

TENANT = Tenant(7, "seven", "Seven")
SOURCE = column(TABLES[2], "w")
History = tuple[list[EventFacts], list[list[EventFacts]]]

many = settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(histories(st.one_of(column_events, metric_events)) | histories(column_events) | histories(metric_events))
def test_columns_and_metrics_in_any_order_end_in_the_reference_and_never_need_a_rebuild(history: History) -> None:
    in_order, groups = history
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, groups) == 0
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(entry_events) | histories(derived_events) | histories(st.one_of(entry_events, derived_events)))
def test_what_is_taken_back_as_a_whole_in_any_order_ends_in_the_reference_and_never_needs_a_rebuild(
    history: History,
) -> None:
    in_order, groups = history
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, groups) == 0
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(moving_events))
def test_names_that_move_in_any_order_end_in_the_reference(history: History) -> None:
    in_order, groups = history
    store = PlainStore(TENANT.id)
    arrive(store, TENANT, groups)
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(moving_wholes) | histories(st.one_of(moving_wholes, moving_events)))
def test_what_is_taken_back_as_a_whole_of_names_that_move_in_any_order_ends_in_the_reference(history: History) -> None:
    in_order, groups = history
    for arriving in (groups, [[event] for event in in_order]):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, arriving)
        assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(plain_events))
def test_without_renames_any_order_ends_in_the_reference_and_never_needs_a_rebuild(history: History) -> None:
    in_order, groups = history
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, groups) == 0
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(st.one_of(plain_events, renames)))
def test_in_order_one_by_one_ends_in_the_reference_and_never_needs_a_rebuild(history: History) -> None:
    in_order, _ = history
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, [[event] for event in in_order]) == 0
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(st.one_of(plain_events, renames)))
def test_with_renames_any_order_ends_in_the_reference(history: History) -> None:
    in_order, groups = history
    store = PlainStore(TENANT.id)
    arrive(store, TENANT, groups)
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(st.one_of(plain_events, renames)))
def test_the_merge_alone_writes_the_same_hidden_facts_as_the_store_has(history: History) -> None:
    """A rebuild merges in memory. Its graph must equal the one that applying the events one by one leaves."""
    in_order, _ = history
    state = empty_state(str(TENANT.id))
    take(state, stamp_facts(in_order))
    store = PlainStore(TENANT.id)
    assert not apply_events(store, TENANT, in_order).needs_rebuild
    items = {str(item.id if isinstance(item, Node) else item.key): item for item in whole_graph(state)}
    stored = {str(item.id if isinstance(item, Node) else item.key): item for item in store.stream()}
    del stored[str(TENANT.id)]
    assert items == stored


def event(at: int, *facts: Fact) -> EventFacts:
    return EventFacts(Version(f"{at:032x}"), facts)


def test_a_group_of_known_tables_costs_two_reads_whatever_its_size() -> None:
    store = PlainStore(TENANT.id)
    wide = {f"c{at}": {"dataType": "int"} for at in range(30)}

    def run(at: int) -> EventFacts:
        source, target = TABLES[at % 2], TABLES[2]
        return event(at, *loaded(source, {}, wide), *ran(SQLS[at % 2], source, target, ("c1", "x"), "DIRECT", True))

    apply_events(store, TENANT, [run(1), run(2)])
    store.reads.clear()
    outcome = apply_events(store, TENANT, [run(at) for at in range(3, 103)])
    assert store.reads == ["nodes", "edges_by_key"]
    # catalog, schema, three tables, two SQLs, the three columns of the lineage, and six edges
    assert outcome.writes == 16


def test_a_table_that_takes_the_place_of_a_dropped_one_keeps_its_own_past() -> None:
    """create t_new; drop t; rename t_new to t: the usual way to replace a table."""
    old, new = TABLES[0], TABLES[1]
    history = [
        event(1, *loaded(old, {"description": "old"}, {"x": {}, "y": {}})),
        event(2, *loaded(new, {"description": "new"}, {"x": {}, "w": {}})),
        event(3, Dropped(old)),
        event(4, Renamed(new, old)),
        event(5, Exists(old, "Table", {"producer": "p"})),
    ]
    late = [event(0, Exists(new, "Table", {"properties.k": "v"})), event(0x1000, Exists(column(old, "w"), "Column"))]
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, [[one] for one in (*history, *late, history[0], history[1])]) == 0
    shown = list(graph_lines(store))
    assert shown == Reference(TENANT, [*history, *late]).lines()
    expected = '"description": "new", "name": "a", "namespace": "m", "producer": "p", "properties": "{'
    assert any(expected in line for line in shown)


def test_a_schema_takes_its_metrics_with_it_when_it_is_dropped_and_they_come_late() -> None:
    metric = Ref("metric", ("m",))
    events = [event(1, *registered(metric, "AtomicMetric", SCHEMAS[0], [], "cm")), event(2, Dropped(SCHEMAS[0]))]
    for order in (events, events[::-1]):
        store = PlainStore(TENANT.id)
        assert arrive(store, TENANT, [[one] for one in order]) == 0
        assert not any("AtomicMetric" in line for line in graph_lines(store))


def test_the_same_columns_said_again_undo_what_was_said_of_a_column_in_between() -> None:
    table = TABLES[0]
    said = loaded(table, {}, {"x": {"dataType": "int"}, "y": {}})
    between = [
        event(2, Exists(column(table, "x"), "Column", {"dataType": "text"})),
        event(3, Dropped(column(table, "y"))),
        event(4, Exists(column(table, "w"), "Column")),
    ]
    for at in range(3):
        history = [event(1, *said), between[at], event(5, *said)]
        store = PlainStore(TENANT.id)
        assert arrive(store, TENANT, [[one] for one in history]) == 0
        assert list(graph_lines(store)) == Reference(TENANT, history).lines()


def test_what_was_stored_before_anything_was_taken_back_as_a_whole_can_be_taken_back() -> None:
    """The keys in `_facts` that remember this are absent before, as they are in graphs of an older version."""
    table, source = TABLES[0], column(TABLES[1], "x")
    store = PlainStore(TENANT.id)
    history = [
        event(1, *loaded(table, {"properties.k": "v"}, {"x": {}, "y": {}})),
        event(2, *derived(column(table, "x"), source, "p")),
    ]
    apply_events(store, TENANT, history)
    memories = [item.props.get("_facts", "") for item in store.stream()]
    assert not any('"entries"' in facts or '"columnSets"' in facts for facts in memories)
    history.append(event(3, Exists(table, "Table", {"properties.l": "w"}, all_entries=True), *underived(table)))
    apply_events(store, TENANT, history[2:])
    shown = list(graph_lines(store))
    assert shown == Reference(TENANT, history).lines()
    assert not any("DERIVES_FROM" in line for line in shown)


def test_taking_back_the_lineage_of_a_wide_table_costs_a_few_reads() -> None:
    table = TABLES[0]
    store = PlainStore(TENANT.id)
    wide = {f"c{at}": {} for at in range(50)}
    links = [event(at, *derived(column(table, f"c{at}"), column(TABLES[1], "x"), "p")) for at in range(2, 40)]
    apply_events(store, TENANT, [event(1, *loaded(table, {}, wide)), *links])
    store.reads.clear()
    apply_events(store, TENANT, [event(99, *underived(table))])
    # the table, its columns, the edges of their lineage, and the columns at the other ends
    assert store.reads == ["nodes", "edges", "nodes", "edges", "nodes", "nodes"]
    assert not any("DERIVES_FROM" in line for line in graph_lines(store))


def test_what_is_taken_back_as_a_whole_goes_with_a_rename_and_not_to_who_takes_the_name_in_every_order() -> None:
    old, new = TABLES[0], TABLES[1]

    def said(table: Ref, at: int) -> EventFacts:
        return event(at, *exists(table, {f"properties.k{at}": "v"}), *derived(column(table, "x"), SOURCE, str(at)))

    def taken_back(table: Ref, at: int) -> EventFacts:
        return event(at, *exists(table, {}, all_entries=True), *underived(table))

    moved = event(3, Renamed(old, new))
    for history in (
        [said(old, 1), taken_back(old, 2), moved, event(4, *exists(new, {"properties.l": "v"}))],
        [said(old, 1), moved, event(4, *underived(old)), said(old, 5)],
    ):
        expected = Reference(TENANT, history).lines()
        for order in permutations(history):
            store = PlainStore(TENANT.id)
            arrive(store, TENANT, [[one] for one in order])
            assert list(graph_lines(store)) == expected


def test_what_was_said_of_a_table_before_two_renames_to_its_name_is_not_taken_for_dropped() -> None:
    history = [
        event(1, *loaded(TABLES[0], {}, {"x": {}})),
        event(2, Renamed(TABLES[1], TABLES[0])),
        event(3, Renamed(TABLES[1], TABLES[0])),
    ]
    expected = Reference(TENANT, history).lines()
    for order in permutations(history):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, [[one] for one in order])
        assert list(graph_lines(store)) == expected

"""What jobs say follows their runs, in any order of arrival; the reference implementation says what should stand."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_defs.access.tenants import Tenant
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.facts import (
    SPEAKER,
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Fact,
    Ref,
    Renamed,
    Unlinked,
)
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.bounds import MAX_CLAIMS
from platform_defs.lineage.sink.apply import EventFacts, apply_events, prune_graph
from platform_defs.lineage.version import Version
from tests.lineage.merging import (
    JOBS,
    SQLS,
    TABLES,
    PlainStore,
    arrive,
    column,
    examples,
    histories,
    loaded,
    plain_events,
    spoken_and_dropped_events,
    spoken_and_joined_events,
    spoken_and_moved_events,
    spoken_and_renamed_columns,
    spoken_events,
    stated,
)
from tests.lineage.reference import Reference

TENANT = Tenant(7, "seven", "Seven")
History = tuple[list[EventFacts], list[list[EventFacts]]]

many = settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(histories(spoken_events) | histories(spoken_and_dropped_events))
def test_statements_and_drops_in_any_order_end_in_the_reference_and_never_need_a_rebuild(history: History) -> None:
    in_order, groups = history
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, groups) == 0
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(spoken_and_moved_events) | histories(st.one_of(spoken_and_moved_events, plain_events)))
def test_statements_about_names_that_move_in_any_order_end_in_the_reference(history: History) -> None:
    in_order, groups = history
    for arriving in (groups, [[event] for event in in_order]):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, arriving)
        assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


@many
@given(histories(spoken_and_renamed_columns) | histories(spoken_and_joined_events))
def test_statements_about_columns_and_tables_that_become_one_in_any_order_end_in_the_reference(
    history: History,
) -> None:
    in_order, groups = history
    for arriving in (groups, [[event] for event in in_order]):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, arriving)
        assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


A, B = TABLES[:2]
J, K = JOBS


def said(
    at: int,
    job: Ref,
    run: str,
    kind: str,
    columns: Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] = (),
    *extras: str,
    target: Ref = B,
    sql: Ref = SQLS[0],
) -> EventFacts:
    facts = stated(job, run, kind, sql, A, target, {name: {} for name in columns}, pairs, extras)
    return EventFacts(Version(f"{at:032x}"), tuple(facts))


def catalog(at: int, *facts: Fact) -> EventFacts:
    return EventFacts(Version(f"{at:032x}"), facts)


def shown(history: Sequence[EventFacts]) -> set[str]:
    """Columns of B as `x`, edges as `type`, or for column lineage `x<y`; the same in every order of arrival."""
    expected = Reference(TENANT, history).lines()
    for order in permutations(history):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, [[one] for one in order])
        assert list(graph_lines(store)) == expected
    names = {
        ref.id: ref.name[-1] for ref in [*(column(B, name) for name in "xyw"), *(column(A, name) for name in "xyw")]
    }
    names |= {table.id: table.name[-1].upper() for table in TABLES}
    found = set[str]()
    for line in map(json.loads, expected):
        if line.get("edge") == "HAS_COLUMN" and line["from"] == B.id:
            found.add(names[line["to"]])
        elif line.get("edge") == "DERIVES_FROM":
            found.add(f"{names[line['from']]}<{names[line['to']]}")
        elif line.get("edge") in ("INPUT_OF", "OUTPUT_TO"):
            found.add(f"{line['edge']} {names.get(line['from']) or names[line['to']]}")
    return found


IO = {"INPUT_OF A", "OUTPUT_TO B"}


def test_a_run_replaces_what_the_jobs_earlier_run_said_and_nobody_elses() -> None:
    first = said(1, J, "r1", "COMPLETE", ["x", "y"], [("x", "x"), ("y", "y")])
    second = said(3, J, "r2", "COMPLETE", ["x"], [("y", "x")])
    assert shown([first, second]) == IO | {"x", "x<y"}
    other = said(2, K, "r1", "COMPLETE", ["y"], [("y", "y")], sql=SQLS[1])
    assert shown([first, other, second]) == IO | {"x", "y", "x<y", "y<y"}


def test_a_run_that_names_no_columns_and_no_lineage_changes_none() -> None:
    first = said(1, J, "r1", "COMPLETE", ["x", "y"], [("y", "x")])
    assert shown([first, said(2, J, "r2", "COMPLETE")]) == IO | {"x", "y", "x<y"}
    assert shown([first, said(2, J, "r2", "COMPLETE", [], [], "input only")]) == {"INPUT_OF A", "x", "y"}


def test_all_events_of_a_run_count_together() -> None:
    start = said(1, J, "r1", "START", ["x"], [("x", "x")])
    empty = said(3, J, "r1", "COMPLETE", [], [], "empty")
    overlapping = said(2, J, "r2", "COMPLETE", ["y"], [("y", "y")])
    assert shown([start, empty]) == IO | {"x", "x<x"}
    assert shown([start, overlapping]) == IO | {"y", "y<y"}
    assert shown([start, overlapping, empty]) == IO | {"x", "x<x"}


def test_a_run_that_has_not_completed_only_adds() -> None:
    first = said(1, J, "r1", "COMPLETE", ["x"], [("x", "x")])
    failed = said(2, J, "r2", "FAIL", ["y"], [("y", "y")])
    assert shown([first, failed]) == IO | {"x", "y", "x<x", "y<y"}
    assert shown([first, failed, said(3, J, "r3", "COMPLETE", ["x"], [("x", "x")])]) == IO | {"x", "x<x"}


def test_a_catalogs_set_removes_what_was_said_before_and_what_is_said_later_counts_again() -> None:
    first = said(1, J, "r1", "COMPLETE", ["x", "y"], [("y", "y")])
    loads = catalog(2, *loaded(B, {}, {"x": {}}))
    assert shown([first, loads]) == IO | {"x"}
    again = said(3, J, "r2", "COMPLETE", ["x", "y"], [("y", "y")])
    assert shown([first, loads, again]) == IO | {"x", "y", "y<y"}


def test_what_jobs_said_moves_with_a_renamed_table_and_column() -> None:
    first = said(1, J, "r1", "COMPLETE", ["x", "w"], [("x", "x")])
    moved = catalog(2, Renamed(column(B, "x"), column(B, "y")))
    assert shown([first, moved]) == IO | {"y", "w", "y<x"}
    old = said(1, J, "r1", "COMPLETE", ["x", "y"], [("x", "x")], target=TABLES[2])
    table = catalog(2, Renamed(TABLES[2], B))
    assert shown([old, table, said(3, J, "r2", "COMPLETE", ["x"], [("y", "x")])]) == IO | {"x", "x<y"}


def test_a_drop_takes_what_jobs_said_and_a_forgotten_drop_does_not_bring_it_back() -> None:
    first, dropped = said(1, J, "r1", "COMPLETE", ["x"], [("x", "x")]), catalog(2, Dropped(B))
    store = PlainStore(TENANT.id)
    arrive(store, TENANT, [[first], [dropped]])
    prune_graph(store, datetime(9000, 1, 1, tzinfo=UTC))
    arrive(store, TENANT, [[said(3, J, "r2", "COMPLETE", [], [], "input only")]])
    assert not any("HAS_COLUMN" in line and B.id in line for line in graph_lines(store))


def test_a_statement_that_is_made_again_writes_only_what_its_job_remembers() -> None:
    wide = [f"c{at}" for at in range(50)]
    store = PlainStore(TENANT.id)
    for run in range(10):
        at = 2 * run
        apply_events(
            store, TENANT, [said(at + 1, J, f"r{run}", "START", wide), said(at + 2, J, f"r{run}", "COMPLETE", wide)]
        )
    result = apply_events(store, TENANT, [said(90, J, "r9", "START", wide), said(91, J, "r9", "COMPLETE", wide)])
    assert result.writes == 1


def test_what_is_remembered_of_a_job_and_of_a_column_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_OPEN_RUNS", 8)
    monkeypatch.setattr(bounds, "MAX_PAST_OPEN", 16)
    store = PlainStore(TENANT.id)
    sizes = []
    for at in range(1, 80):
        job = Ref(SPEAKER, ("job", "n", f"once{at}"))
        apply_events(
            store, TENANT, [said(2 * at, job, "r", "COMPLETE", ["x"]), said(2 * at + 1, J, f"r{at}", "START", ["y"])]
        )
        nodes = store.nodes([column(B, "x").id, J.id])
        sizes.append(sum(len(node.props["_facts"]) for node in nodes.values()))
    assert sizes[-1] < 1.1 * sizes[45]
    assert any('"name": "x"' in line for line in graph_lines(store))


def test_a_column_that_more_jobs_claim_than_are_remembered_comes_back_when_any_of_them_says_it_after_a_drop() -> None:
    jobs = [Ref(SPEAKER, ("job", "n", f"j{at}")) for at in range(MAX_CLAIMS + 2)]
    # of so many claims that of the last job by id is not remembered
    last = max(jobs, key=lambda job: job.id)

    def ran(at: int, job: Ref) -> EventFacts:
        return said(at, job, f"r{at}", "COMPLETE", ["x"], sql=Ref("sql", (job.name[-1],)))

    first = [ran(at, job) for at, job in enumerate(jobs, 1)]
    again = ran(200, last)
    for drop in ([Dropped(B)], loaded(B, {}, {"y": {}})):
        dropped = catalog(100, *drop)
        store = PlainStore(TENANT.id)
        assert arrive(store, TENANT, [first, [dropped], [again]]) == 0
        lines = list(graph_lines(store))
        assert any(column(B, "x").id in line for line in lines)
        assert lines == Reference(TENANT, [*first, dropped, again]).lines()
    late = PlainStore(TENANT.id)
    arrive(late, TENANT, [first, [again], [catalog(100, Dropped(B))]])
    assert list(graph_lines(late)) == Reference(TENANT, [*first, catalog(100, Dropped(B)), again]).lines()


def test_a_column_that_is_renamed_twice_keeps_what_a_job_said_of_both_names() -> None:
    events = [
        EventFacts(
            Version(f"{1:032x}"),
            tuple(stated(J, "r1", "START", SQLS[0], A, A, {"x": {"dataType": "p"}}, [("y", "y")], ["whole"])),
        ),
        catalog(2, Renamed(column(A, "x"), column(A, "y"))),
        catalog(3, Renamed(column(A, "y"), column(A, "v"))),
        catalog(4, Renamed(column(A, "v"), column(A, "x"))),
        catalog(5, Renamed(column(B, "y"), column(B, "x"))),
    ]
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, [[event] for event in events]) == 0
    shown = list(graph_lines(store))
    assert shown == Reference(TENANT, events).lines()
    assert any('"dataType": "p", "name": "x"' in line for line in shown)


def test_a_repeated_set_of_columns_drops_what_a_job_said_since_the_first_one_also_if_that_one_arrives_late() -> None:
    for columns in ({}, {"x": {}}):
        first, again = (catalog(at, *loaded(B, {}, columns)) for at in (1, 3))
        assert shown([first, said(2, J, "r1", "START", ["y"]), again]) == IO | columns.keys()


def test_what_a_run_said_of_a_column_counts_again_although_others_were_renamed_to_its_name_meanwhile() -> None:
    """The run's late COMPLETE makes it the current one. Nothing was dropped, so what was renamed to y is y as well."""
    first, ends = said(1, J, "r1", "COMPLETE", ["y"]), said(5, J, "r1", "COMPLETE", (), (), "empty")
    to_y = [catalog(at, Renamed(column(B, "v"), column(B, "y"))) for at in (3, 4)]
    # or the column itself is renamed, and after it another column gets the same two names
    away = [catalog(at, Renamed(column(B, "y"), column(B, "v"))) for at in (2, 4)]
    for history, left in (
        ([first, said(2, J, "r2", "COMPLETE", ["x"]), *to_y, ends], column(B, "y")),
        ([first, away[0], said(3, J, "r2", "COMPLETE", ["x"]), away[1], ends], column(B, "v")),
    ):
        for groups in ([history], [[one] for one in history], [[one] for one in history[::-1]]):
            store = PlainStore(TENANT.id)
            arrive(store, TENANT, groups)
            lines = list(graph_lines(store))
            assert lines == Reference(TENANT, history).lines()
            assert any('"HAS_COLUMN"' in line and left.id in line for line in lines)


def test_what_a_run_said_before_a_drop_does_not_count_because_another_run_says_the_same_after_it() -> None:
    """The run ends last, so that nothing counts but what it said: and that was dropped."""
    start, same = said(1, J, "r1", "START"), said(3, J, "r2", "START")
    assert shown([start, catalog(2, Dropped(B)), same, said(4, J, "r1", "COMPLETE", (), (), "empty")]) == {"INPUT_OF A"}


def test_what_a_run_says_before_and_after_a_columns_rename_counts_for_both_columns_also_in_one_group() -> None:
    """After the rename another column is called x. The group says nothing new of it, so its columns are not loaded."""
    first, again = (said(at, J, "r1", "COMPLETE", ["x", "y"], [("x", "y")], "whole") for at in (1, 3))
    moved = catalog(2, Renamed(column(B, "x"), column(B, "v")))
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, [[moved, again], [again, first]]) == 0
    assert list(graph_lines(store)) == Reference(TENANT, [first, moved, again]).lines()


C = TABLES[2]


def test_lineage_counts_again_when_the_table_becomes_one_with_the_table_of_the_current_run() -> None:
    """As if the two had always been one: then the current run names the table, and says nothing of its lineage."""
    moved = catalog(3, Renamed(C, B))
    for first, second in ((C, B), (B, C)):
        events = [
            said(1, J, "r1", "COMPLETE", ["x"], [("y", "x")], "whole", target=first),
            said(2, J, "r2", "COMPLETE", target=second),
        ]
        assert shown([*events, moved]) == IO | {"x", "x<y", "B<w"}


def test_lineage_that_was_dropped_does_not_count_again_when_the_table_becomes_one_with_another() -> None:
    moved = catalog(4, Renamed(C, B))
    drops: list[Fact] = [
        *(Dropped(column(table, name)) for table, name in ((C, "x"), (B, "x"), (A, "y"))),
        Unlinked("DERIVES_FROM", column(C, "x"), column(A, "y")),
        *(ColumnsUnlinked(table, frozenset({"DERIVES_FROM"})) for table in (C, B)),
        *(ColumnSet(table, ()) for table in (C, B)),
    ]
    for first, second in ((C, B), (B, C)):
        for drop in drops:
            events = [
                said(1, J, "r1", "COMPLETE", ["x"], [("y", "x")], target=first),
                said(2, J, "r2", "COMPLETE", target=second),
                catalog(3, drop),
                moved,
            ]
            shown(events)


def test_lineage_that_was_dropped_before_its_table_became_one_with_another_stays_dropped_when_its_run_ends() -> None:
    """The run's late COMPLETE makes it the current one again, long after what it said was dropped."""
    for target in (C, B):
        for drop in (Dropped(column(target, "x")), Dropped(target), ColumnSet(target, ())):
            shown(
                [
                    said(1, J, "r1", "START", ["x"], [("y", "x")], "whole", target=target),
                    said(2, J, "r2", "COMPLETE", target=TABLES[3]),
                    catalog(3, drop),
                    EventFacts(Version(f"{4:032x}"), (Exists(C, "Table"), Exists(B, "Table"), Renamed(C, B))),
                    said(5, J, "r1", "COMPLETE", (), (), "empty"),
                ]
            )


def test_a_columns_rename_is_not_forgotten_when_its_table_becomes_one_with_another() -> None:
    for table in (C, B):
        events = [
            said(1, J, "r1", "COMPLETE", ["x"], [("y", "x")], target=table),
            catalog(2, Exists(B, "Table"), Renamed(column(table, "x"), column(table, "y"))),
            catalog(3, Renamed(C, B)),
        ]
        assert shown(events) == IO | {"y", "y<y"}


def test_a_rename_is_remembered_as_long_as_a_job_may_take_back_what_it_said_before() -> None:
    """A job that runs once a week: between its runs the table is renamed, and old renames are forgotten."""
    moves = (Renamed(C, B), Renamed(column(B, "y"), column(B, "v")))
    history = [
        said(1, J, "r1", "COMPLETE", ["x", "y"], [("x", "x"), ("y", "y")], target=C),
        *(catalog(at, move) for at, move in enumerate(moves, 2)),
        said(8, J, "r2", "COMPLETE", ["x"], [("x", "x")]),
    ]
    store = PlainStore(TENANT.id)
    for event in history:
        arrive(store, TENANT, [[event]])
        prune_graph(store, datetime(9000, 1, 1, tzinfo=UTC))
    assert list(graph_lines(store)) == Reference(TENANT, history).lines()
    # the statements that need the renames are forgotten first, and then the renames
    for at in range(20):
        arrive(store, TENANT, [[said(20 + at, J, f"r{at + 3}", "COMPLETE", ["x"], [("x", "x")])]])
    prune_graph(store, datetime(9000, 1, 1, tzinfo=UTC))
    assert not store.nodes([C.id, column(B, "y").id])


def test_lineage_that_a_forgotten_run_has_ended_does_not_come_back_when_its_table_is_renamed() -> None:
    """The run that said it is remembered, because its other table still has the lineage that it said."""
    history = [
        said(1, J, "r1", "START", ["x"], [("y", "x")], target=C),
        said(2, J, "r1", "COMPLETE", ["x"], [("y", "x")]),
        said(3, J, "ends", "COMPLETE"),
        said(30, J, "other", "START", target=TABLES[3]),
        *(said(4 + at, J, f"s{at // 2}", "COMPLETE", target=(B, C)[at % 2]) for at in range(24)),
        catalog(40, Exists(TABLES[3], "Table"), Renamed(C, TABLES[3])),
    ]
    store = PlainStore(TENANT.id)
    arrive(store, TENANT, [[event] for event in history])
    assert list(graph_lines(store)) == Reference(TENANT, history).lines()


def test_a_group_in_which_a_job_names_a_new_column_and_a_catalog_repeats_its_set_is_merged() -> None:
    catalogs = loaded(B, {}, {"v": {}, "y": {"dataType": "c"}})
    history = [catalog(1, *catalogs), said(2, J, "r1", "START", ["x"], [("x", "x")]), catalog(3, *catalogs)]
    store = PlainStore(TENANT.id)
    assert arrive(store, TENANT, [history[:1], history[1:]]) == 0
    assert list(graph_lines(store)) == Reference(TENANT, history).lines()


def test_a_statement_that_is_made_again_and_arrives_late_counts_for_the_column_that_bore_the_name_then() -> None:
    """Two columns were called x one after the other, and both were renamed: each was read under that name."""
    first, again = (said(time, J, "r1", "COMPLETE", ["x"], [("x", "x")]) for time in (1, 3))
    renames = [catalog(2, Renamed(column(A, "x"), column(A, "y"))), catalog(4, Renamed(column(A, "x"), column(A, "v")))]
    store = PlainStore(TENANT.id)
    arrive(store, TENANT, [[first, *renames], [again]])
    lines = list(graph_lines(store))
    assert lines == Reference(TENANT, [first, renames[0], again, renames[1]]).lines()
    assert sum("DERIVES_FROM" in line for line in lines) == 2

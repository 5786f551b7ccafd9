"""The merge remembers a bounded number of claims and runs; beyond the bounds it stays exact or asks for a rebuild."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.graph.port import GraphStore
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.facts import SPEAKER, Dropped, Fact, Ref, Renamed, Statement, Unlinked
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import Version
from tests.lineage.merging import (
    CROWD,
    MANY_RUNS,
    OPEN_RUNS,
    REPEATING_RUNS,
    TABLES,
    PlainStore,
    arrive,
    column,
    crowded_and_moved_events,
    crowded_events,
    examples,
    histories,
    loaded,
    many_runs_and_moved_events,
    many_runs_events,
    open_runs_and_moved_events,
    open_runs_events,
    repeating_runs_events,
    stated,
)
from tests.lineage.reference import Reference
from tests.lineage.test_rebuild import rebuilt

TENANT = DEMO_TENANT
History = tuple[list[EventFacts], list[list[EventFacts]]]
A, B, C, _ = TABLES

many = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so low that a few events go beyond all of them."""
    monkeypatch.setattr(bounds, "MAX_CLAIMS", 2)
    monkeypatch.setattr(bounds, "MAX_RUNS", 1)
    monkeypatch.setattr(bounds, "MAX_OPEN_RUNS", 1)
    monkeypatch.setattr(bounds, "MAX_UNFINISHED", 1)


def ends_in_the_reference(history: History, engine: Engine) -> None:
    """In the order of arrival, in that of the versions, and after a rebuild that finds the graph of either."""
    in_order, groups = history
    expected = Reference(TENANT, in_order).lines()
    for arriving in (groups, [[event] for event in in_order]):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, arriving)
        assert list(graph_lines(store)) == expected
        assert rebuilt(engine, store, in_order) == expected


@pytest.mark.usefixtures("small_memory")
def test_what_more_jobs_say_than_are_remembered_ends_in_the_reference_in_any_order(migrated: dict[str, Engine]) -> None:
    @many
    @given(histories(crowded_events, CROWD) | histories(crowded_and_moved_events, CROWD))
    def same(history: History) -> None:
        ends_in_the_reference(history, migrated["sqlite"])

    same()


@pytest.mark.usefixtures("small_memory")
def test_what_more_runs_say_than_are_remembered_ends_in_the_reference_in_any_order(migrated: dict[str, Engine]) -> None:
    @many
    @given(histories(many_runs_events, MANY_RUNS) | histories(many_runs_and_moved_events, MANY_RUNS))
    def same(history: History) -> None:
        ends_in_the_reference(history, migrated["sqlite"])

    same()


@pytest.mark.parametrize("remembered", [1, 2])
@pytest.mark.usefixtures("small_memory")
def test_runs_that_repeat_themselves_beyond_what_is_remembered_end_in_the_reference_in_any_order(
    remembered: int, migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_RUNS", remembered)

    @many
    @given(histories(repeating_runs_events, REPEATING_RUNS))
    def same(history: History) -> None:
        ends_in_the_reference(history, migrated["sqlite"])

    same()


@pytest.mark.usefixtures("small_memory")
def test_what_more_uncompleted_runs_say_than_are_remembered_ends_in_the_reference_in_any_order(
    migrated: dict[str, Engine],
) -> None:
    @many
    @given(histories(open_runs_events, OPEN_RUNS) | histories(open_runs_and_moved_events, OPEN_RUNS))
    def same(history: History) -> None:
        ends_in_the_reference(history, migrated["sqlite"])

    same()


@pytest.mark.usefixtures("small_memory")
def test_whatever_events_are_forgotten_what_more_uncompleted_runs_said_than_are_remembered_stays(
    migrated: dict[str, Engine],
) -> None:
    @many
    @given(histories(open_runs_events, OPEN_RUNS) | histories(open_runs_and_moved_events, OPEN_RUNS), st.data())
    def same(history: History, data: st.DataObject) -> None:
        in_order = each_of_a_new_run(history[0])
        forgotten = data.draw(st.integers(0, len(in_order)))
        store = PlainStore(TENANT.id)
        arrive(cast(GraphStore, store), TENANT, [[one] for one in in_order])
        assert rebuilt(migrated["sqlite"], store, in_order[forgotten:]) == Reference(TENANT, in_order).lines()

    same()


def each_of_a_new_run(events: Sequence[EventFacts]) -> list[EventFacts]:
    """What is deleted of a run that is not remembered is no part of it any more, so no run says anything twice."""
    return [
        replace(
            event,
            facts=tuple(fact.of_run(str(at)) if isinstance(fact, Statement) else fact for fact in event.facts),
        )
        for at, event in enumerate(events)
    ]


def test_whatever_events_are_forgotten_a_crowd_stays(
    migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_CLAIMS", 2)

    @many
    @given(histories(crowded_events, CROWD), st.data())
    def same(history: History, data: st.DataObject) -> None:
        in_order, _ = history
        forgotten = data.draw(st.integers(0, len(in_order)))
        store = PlainStore(TENANT.id)
        arrive(cast(GraphStore, store), TENANT, [[one] for one in in_order])
        assert rebuilt(migrated["sqlite"], store, in_order[forgotten:]) == Reference(TENANT, in_order).lines()

    same()


JOBS = sorted((Ref(SPEAKER, ("job", "n", f"j{at}")) for at in range(bounds.MAX_CLAIMS + 4)), key=lambda job: job.id)


def said(at: int, job: Ref, columns: Sequence[str], pairs: Sequence[tuple[str, str]] = (), **types: str) -> EventFacts:
    """A run of the job that reads A and writes B."""
    given = {name: {"dataType": types[name]} if name in types else {} for name in columns}
    facts = stated(job, f"r{at}", "COMPLETE", Ref("sql", (job.name[-1],)), A, B, given, pairs, [])
    return EventFacts(Version(f"{at:032x}"), tuple(facts))


def catalog(at: int, *facts: Fact) -> EventFacts:
    return EventFacts(Version(f"{at:032x}"), facts)


ALL = [said(at, job, ["x"], [("x", "x")]) for at, job in enumerate(JOBS, 1)]
# of so many jobs only the first ones are remembered one by one
LAST = JOBS[-1]


def rebuilds_of(*groups: Sequence[EventFacts]) -> int:
    store = PlainStore(TENANT.id)
    rebuilds = arrive(store, TENANT, groups)
    assert list(graph_lines(store)) == Reference(TENANT, [event for group in groups for event in group]).lines()
    return rebuilds


X, XX = column(B, "x"), ("DERIVES_FROM", column(B, "x"), column(A, "x"))
ENDS: list[list[Fact]] = [
    [Dropped(X)],
    [Dropped(B)],
    loaded(B, {}, {"y": {}}),
    [Dropped(column(A, "x"))],
    [Unlinked(*XX)],
]


@pytest.mark.parametrize("end", ENDS, ids=["column", "table", "set", "source", "edge"])
def test_a_drop_ends_a_crowd_and_anybody_of_it_brings_the_column_back(end: list[Fact]) -> None:
    drop, again = catalog(100, *end), said(200, LAST, ["x"], [("x", "x")])
    assert rebuilds_of(ALL, [drop]) == 0
    assert rebuilds_of(ALL, [drop], [again]) == 0
    assert rebuilds_of(ALL, [again], [drop]) == 1, "when the crowd has spoken, before or after it, is not known"
    late = catalog(0, *end)
    assert rebuilds_of(ALL, [again], [late]) == 0, "it is older than all that was said"


def test_a_drop_of_a_column_is_known_to_be_late_although_who_spoke_later_wrote_nothing_on_its_table() -> None:
    """A job that repeats itself changes only what is remembered of the job."""
    for event in (said(200, LAST, ["x"], [("x", "x")]), said(200, JOBS[0], ["x"], [("x", "x")])):
        assert rebuilds_of(ALL, [event], [catalog(100, Dropped(X))]) == 1


def test_a_column_is_gone_when_all_of_a_crowd_have_taken_it_back() -> None:
    gone = [said(100 + at, job, ["y"], [("y", "y")]) for at, job in enumerate(JOBS)]
    last_first = [[event] for event in reversed(gone)]
    assert rebuilds_of(ALL, *last_first) == 0
    # those who are remembered go first: who is the next to decide what the column is like is not known
    assert rebuilds_of(ALL, *([event] for event in gone)) == 1


def test_what_a_column_is_like_may_be_told_by_the_last_of_many() -> None:
    typed = said(100, LAST, ["x"], [("x", "x")], x="int")
    assert rebuilds_of(ALL, [typed]) == 0
    assert rebuilds_of([typed], *([event] for event in ALL)) == 0
    other = said(101, JOBS[-2], ["x"], [("x", "x")], x="text")
    assert rebuilds_of(ALL, [typed], [other]) == 0
    assert rebuilds_of(ALL, [typed], [other], [said(102, JOBS[-2], ["x"], [("x", "x")])]) == 1


def test_a_crowd_moves_with_a_renamed_column_and_table() -> None:
    moves = [catalog(100, Renamed(X, column(B, "v"))), catalog(101, Renamed(B, C))]
    assert rebuilds_of(ALL, *([move] for move in moves)) == 0
    assert rebuilds_of(ALL, *([move] for move in moves), [catalog(102, Dropped(column(C, "v")))]) == 0
    again = said(200, LAST, ["x"], [("x", "x")])
    assert rebuilds_of(ALL, [again], moves[:1]) == 1
    # two columns with crowds become one
    both = [said(at, job, ["x", "y"]) for at, job in enumerate(JOBS, 1)]
    assert rebuilds_of(both, [catalog(100, Renamed(X, column(B, "y")))]) == 1


def ran(at: int, run: str, kind: str, target: Ref, *columns: str, lineage: bool = False) -> EventFacts:
    pairs = [("x", name) for name in columns] if lineage else []
    extras = [] if columns else ["empty"]
    facts = stated(LAST, run, kind, Ref("sql", ("q",)), A, target, {name: {} for name in columns}, pairs, extras)
    return EventFacts(Version(f"{at:032x}"), tuple(facts))


def test_anybody_of_a_crowd_brings_a_column_back_also_if_its_current_run_writes_another_table() -> None:
    """Who drops the column does not find the job by the edges at the table, and so cannot tell it of the drop."""
    sql = Ref("sql", (LAST.name[-1],))
    current, again = (
        EventFacts(Version(f"{at:032x}"), tuple(stated(LAST, f"r{at}", kind, sql, A, target, {"x": {}}, [], [])))
        for at, kind, target in ((70, "COMPLETE", C), (60, "COMPLETE", B))
    )
    several = [said(at, job, ["x"]) for at, job in enumerate(JOBS, 1)]
    assert rebuilds_of(several, [current], [catalog(55, Dropped(X))], [again]) == 0


def test_more_runs_at_once_than_are_remembered_each_count_when_they_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is mapped over many tables: all start, then all complete, some without naming the table."""
    tables = [Ref("table", (*B.name[:-1], f"t{number}")) for number in range(24)]
    starts = [ran(1 + at, f"r{at}", "START", table, "x") for at, table in enumerate(tables)]
    ends = [ran(200 + at, f"r{at}", "COMPLETE", table, "x") for at, table in enumerate(tables)]
    assert rebuilds_of(*([event] for event in (*starts, *ends))) == 0
    nameless = ran(300, "r3", "COMPLETE", B)
    assert rebuilds_of(*([event] for event in starts), [nameless]) == 0
    monkeypatch.setattr(bounds, "MAX_OPEN_RUNS", 16)
    assert rebuilds_of(*([event] for event in starts), [nameless]) == 1


@pytest.mark.usefixtures("small_memory")
def test_an_old_event_of_a_run_that_is_not_remembered_does_not_stand_for_its_newer_ones() -> None:
    said_again = [ran(at, "r0", "START", C, "x", "y") for at in (1, 7)]
    drop, other, done = catalog(3, Dropped(C)), ran(8, "r4", "START", B, "x"), ran(11, "r0", "COMPLETE", C, "y")
    assert rebuilds_of([said_again[1]], [drop], [other], [said_again[0], done]) == 1


def test_what_uncompleted_runs_said_ends_with_the_next_one_that_completes_however_many_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_OPEN_RUNS", 4)
    monkeypatch.setattr(bounds, "MAX_UNFINISHED", 16)
    failed = [[ran(at, f"r{at}", "FAIL", B, f"c{at}")] for at in range(1, 40)]
    done = ran(300, "done", "COMPLETE", B, "x")
    assert rebuilds_of(*failed) == 0
    assert rebuilds_of(*failed, [done]) == 1
    assert rebuilds_of(*failed, [done], [ran(301, "next", "COMPLETE", B, "y")]) == 1
    assert rebuilds_of(*failed[:12], [done]) == 0


@pytest.mark.usefixtures("small_memory")
def test_what_uncompleted_runs_said_stays_although_its_events_are_deleted_until_a_run_completes(
    migrated: dict[str, Engine],
) -> None:
    """More of it than is remembered. The claims alone tell what it was: none may be lost, none may stay for ever."""
    failed = [ran(at, f"r{at}", "FAIL", B, f"c{at}", lineage=True) for at in range(1, 6)]
    done = ran(300, "done", "COMPLETE", B, "x")
    store = PlainStore(TENANT.id)
    arrive(cast(GraphStore, store), TENANT, [[event] for event in failed])
    said = Reference(TENANT, failed).lines()
    # everything is deleted, little by little
    for deleted in (3, 4, 5):
        assert rebuilt(migrated["sqlite"], store, failed[deleted:]) == said
    assert apply_events(cast(GraphStore, store), TENANT, [done]).needs_rebuild
    assert rebuilt(migrated["sqlite"], store, [done]) == Reference(TENANT, [*failed, done]).lines()


@pytest.mark.usefixtures("small_memory")
def test_what_uncompleted_runs_said_goes_with_a_renamed_table_however_many_they_were() -> None:
    failed = [ran(at, f"r{at}", "FAIL", B, f"c{at}", lineage=True) for at in range(1, 6)]
    moves = [catalog(10, Renamed(B, C)), catalog(11, Renamed(column(C, "c1"), column(C, "z")))]
    assert rebuilds_of(*([event] for event in (*failed, *moves))) == 0
    # the table of the new name has a past of its own
    other = ran(7, "r7", "FAIL", C, "x", lineage=True)
    assert rebuilds_of(*([event] for event in (*failed, other, *moves))) == 1


@pytest.mark.usefixtures("small_memory")
def test_what_uncompleted_runs_said_of_a_table_that_was_renamed_since_ends_too_when_a_run_completes(
    migrated: dict[str, Engine],
) -> None:
    failed = [ran(at, f"r{at}", "FAIL", B, f"c{at}", lineage=True) for at in range(1, 6)]
    moved = catalog(10, Dropped(C), Renamed(B, C))
    done = ran(300, "done", "COMPLETE", C, "x")
    for stored in ([], [moved]):
        store = PlainStore(TENANT.id)
        arrive(cast(GraphStore, store), TENANT, [[event] for event in (*failed, moved)])
        assert rebuilt(migrated["sqlite"], store, stored) == Reference(TENANT, [*failed, moved]).lines()
        assert apply_events(cast(GraphStore, store), TENANT, [done]).needs_rebuild
        assert rebuilt(migrated["sqlite"], store, [*stored, done]) == Reference(TENANT, [*failed, moved, done]).lines()


@pytest.mark.parametrize("kind", ["FAIL", "COMPLETE"])
@pytest.mark.usefixtures("small_memory")
def test_what_is_deleted_of_a_run_that_is_not_remembered_is_no_part_of_it_any_more(
    kind: str, migrated: dict[str, Engine]
) -> None:
    """Nothing tells then what the run has said: a later event of it is taken for one of a new run."""
    first, *stored = [ran(at, f"r{at}", kind, B, f"c{at}") for at in (1, 2, 3)]
    store = PlainStore(TENANT.id)
    arrive(cast(GraphStore, store), TENANT, [[event] for event in (first, *stored)])
    assert rebuilt(migrated["sqlite"], store, stored) == Reference(TENANT, [first, *stored]).lines()
    again, as_if = (ran(9, run, "COMPLETE", B, "y") for run in ("r1", "new"))
    apply_events(cast(GraphStore, store), TENANT, [again])
    assert rebuilt(migrated["sqlite"], store, [*stored, again]) == Reference(TENANT, [first, *stored, as_if]).lines()


def test_a_column_that_was_read_once_more_after_a_drop_stays_although_that_run_is_forgotten() -> None:
    reads = [said(1, LAST, ["x"], [("y", "x")]), said(5, LAST, ["x"], [("y", "x")])]
    others = [said(10 + at, LAST, ["x"], [("x", "x")]) for at in range(2 * bounds.MAX_RUNS)]
    drop = catalog(3, Dropped(column(A, "y")))
    assert rebuilds_of(*([event] for event in (*reads, *others)), [drop]) == 1


def test_lineage_counts_again_when_the_run_that_ended_it_names_the_table_after_all() -> None:
    first = ran(1, "first", "COMPLETE", B, "x", lineage=True)
    same = [ran(10 + at, f"r{at}", "COMPLETE", B, "x") for at in range(2 * bounds.MAX_RUNS)]
    ends = [ran(50, "last", "COMPLETE", C, "x"), ran(51, "last", "RUNNING", B, "x")]
    assert rebuilds_of(*([event] for event in (first, *same, *ends))) == 0


@pytest.mark.usefixtures("small_memory")
def test_what_forgotten_runs_that_never_completed_said_of_a_column_counts_when_another_one_names_it_too() -> None:
    """None of the runs has completed, so all that they say counts together."""
    given: list[dict[str, dict[str, str]]] = [{"x": {"dataType": "p"}}, {"y": {}}, {"y": {"dataType": "q"}}, {"x": {}}]
    events = [
        catalog(at, *stated(JOBS[0], f"r{at}", "START", Ref("sql", ("q",)), A, B, columns, [], []))
        for at, columns in enumerate(given, 1)
    ]
    for order in (events, events[::-1]):
        store = PlainStore(TENANT.id)
        arrive(store, TENANT, [[event] for event in order])
        lines = list(graph_lines(store))
        assert lines == Reference(TENANT, events).lines()
        assert any('"dataType": "p", "name": "x"' in line for line in lines)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("names", ["abcde", "edcba", "vwxyz", "klmno", "13579"])
def test_of_runs_that_are_not_remembered_the_last_ones_leave_a_trace(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So an event that is late by few runs is never taken for one of a new run."""
    monkeypatch.setattr(bounds, "MAX_PAST_COMPLETED", 2)
    completed = [[ran(10 + at, name, "COMPLETE", B, "x")] for at, name in enumerate(names)]
    late = ran(50, names[-2], "RUNNING", B, "y")
    assert rebuilds_of(*completed, [late]) == 1


def test_runs_that_repeat_themselves_and_arrive_in_reverse_need_no_rebuild() -> None:
    """A backlog that is sent newest first: far more runs than are remembered, and all of them say the same lineage."""
    in_order = [said(at, JOBS[0], ["x"], [("x", "x")]) for at in range(1, 4 * bounds.MAX_RUNS)]
    store = PlainStore(TENANT.id)
    assert arrive(cast(GraphStore, store), TENANT, [[event] for event in reversed(in_order)]) == 0
    assert list(graph_lines(store)) == Reference(TENANT, in_order).lines()


BACKLOG = 4 * bounds.MAX_RUNS


def newest_first(*runs: Sequence[EventFacts]) -> list[list[EventFacts]]:
    return [[event] for run in reversed(runs) for event in reversed(run)]


def test_starts_that_come_after_the_ends_of_their_runs_need_no_rebuild() -> None:
    """A backlog that is sent newest first: a run is not remembered any more when its START arrives."""
    runs = [
        [
            ran(10 * at, f"r{at}", "START", B, "x"),
            ran(10 * at + 1, f"r{at}", "RUNNING", B),
            ran(10 * at + 2, f"r{at}", "COMPLETE", B, "x", "y", lineage=True),
        ]
        for at in range(1, BACKLOG)
    ]
    assert rebuilds_of(*newest_first(*runs)) == 0
    # a START that names a table of which its run has ended the lineage
    other = [[ran(10 * at, f"r{at}", "START", C, "x"), *run[1:]] for at, run in enumerate(runs, 1)]
    assert rebuilds_of(*newest_first(runs[0], *other[1:])) > 0


def test_starts_that_come_after_ends_without_a_dataset_need_no_rebuild() -> None:
    runs = [
        [ran(10 * at, f"r{at}", "START", B, "x", lineage=True), ran(10 * at + 2, f"r{at}", "COMPLETE", B)]
        for at in range(1, BACKLOG)
    ]
    assert rebuilds_of(*newest_first(*runs)) == 0


def test_runs_that_complete_twice_and_arrive_in_reverse_need_no_rebuild() -> None:
    """As Spark says it: at the end of its query, and at the end of the job that the query was."""
    runs = [
        [
            EventFacts(Version(f"{10 * at + more:016x}{0:016x}"), ran(1, f"r{at}", "COMPLETE", B, *names).facts)
            for more, names in enumerate((["x"], ["x", "y"]))
        ]
        for at in range(1, BACKLOG)
    ]
    assert rebuilds_of(*newest_first(*runs)) == 0


def test_runs_that_complete_twice_while_others_of_their_job_complete_need_no_rebuild() -> None:
    apart = bounds.MAX_RUNS + 3
    ends = [ran(10 * at, f"r{at}", "COMPLETE", B, "x", lineage=True) for at in range(1, BACKLOG)]
    again = [ran(10 * (at + apart) + 5, f"r{at}", "COMPLETE", B, "x", lineage=True) for at in range(1, BACKLOG)]
    assert rebuilds_of(*([event] for event in sorted([*ends, *again], key=lambda event: event.version))) == 0


@pytest.mark.usefixtures("small_memory")
def test_a_group_in_which_a_run_is_put_aside_and_another_one_says_the_same_is_merged() -> None:
    before = [ran(3, "r1", "START", B, "y"), ran(8, "r3", "COMPLETE", B, "x")]
    group = [ran(4, "r1", "COMPLETE", B, "x"), ran(5, "r2", "START", B, "y"), ran(6, "r2", "COMPLETE", B, "x")]
    assert rebuilds_of(before, group) == 0


@pytest.mark.usefixtures("small_memory")
def test_a_run_that_is_put_aside_and_says_the_same_after_a_drop_brings_back_what_was_dropped() -> None:
    """A rebuild merges all of it at once, as this group: the drop must reach also what the run had said before."""
    first, *others = [ran(at, f"r{at}", "START", B, f"c{at}", lineage=True) for at in (1, 2, 3)]
    again = ran(20, "r1", "START", B, "c1", lineage=True)
    for drop in ([Dropped(column(A, "x"))], [Dropped(column(B, "c1"))], [Unlinked(XX[0], column(B, "c1"), XX[2])]):
        events = [first, *others, catalog(10, *drop), again]
        assert rebuilds_of(events) == 0
        assert rebuilds_of(*([event] for event in events)) == 0

"""A name that was linked to a table means that table, whichever events say so, in every order and on every store."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, select, update

from platform_defs.access.principal import SourceType
from platform_defs.graph.errors import GraphUnavailable
from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import Graph
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.rows import meanings, symlinks
from platform_defs.lineage.sink.rows.meanings import Meaning
from platform_defs.lineage.sink.rows.symlinks import read_all
from platform_defs.lineage.upkeep.rebuilt_names import RebuiltNames
from platform_defs.lineage.version import Version
from platform_defs.store.engine import transact
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.tables.lineage import lineage_events, lineage_symlink
from tests.graph.conftest import GRAPHS
from tests.lineage.deliveries import Arrival, Deliveries, true_facts
from tests.lineage.merging import examples
from tests.lineage.reference import Reference
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.wire import at_catalog, dataset, gravitino, run_event, schema

__all__ = ["open_graphs"]
START = datetime(2026, 1, 1, tzinfo=UTC)
FILES, HIVE = "hdfs://h", "hive://h:9083"
ENDS = [(2, "RUNNING"), (3, "COMPLETE")]
EXAMPLES = {"sqlite": 60, "mysql": 8, "mariadb": 8, "neo4j": 8}


@pytest.fixture(params=GRAPHS)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(
    place: str, open_graphs: Callable[[str], Graph], migrated: dict[str, Engine]
) -> Iterator[Callable[[], Deliveries]]:
    """Neo4j has its rows in SQLite here."""
    made: list[Deliveries] = []

    def open_one() -> Deliveries:
        made.append(Deliveries(migrated["sqlite" if place == "neo4j" else place], open_graphs(place)))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


@pytest.fixture
def deliveries(opened: Callable[[], Deliveries]) -> Deliveries:
    return opened()


def path(name: str, table: str | None = None, **facets: Any) -> dict[str, Any]:
    """A dataset by its path; table: what the path is linked to, `-` if that is taken back."""
    if table == "-":
        facets["symlinks"] = {"_deleted": True}
    elif table is not None:
        facets["symlinks"] = {"identifiers": [{"namespace": HIVE, "name": table, "type": "TABLE"}]}
    return dataset(FILES, f"/wh/{name}", **facets)


def ran(
    minute: float,
    reads: list[dict[str, Any]],
    writes: list[dict[str, Any]],
    job: str = "job",
    arrived: float = 1e6,
    kind: str = "COMPLETE",
    run: str | None = None,
    sql: str | None = None,
) -> Arrival:
    facets = {} if sql is None else {"sql": {"query": sql}}
    raw = run_event(
        eventTime=(START + timedelta(minutes=minute)).isoformat(),
        eventType=kind,
        run={"runId": run or f"{job}-{minute}"},
        job={"namespace": "n", "name": job, "facets": facets},
        inputs=reads,
        outputs=writes,
    )
    return Arrival(raw, START + timedelta(minutes=arrived))


def tables(deliveries: Deliveries) -> set[str]:
    return {line.split('"qualifiedName": "')[1].split('"')[0] for line in deliveries.lines() if '"Table"' in line}


def expected(deliveries: Deliveries, arrivals: list[Arrival]) -> list[str]:
    return Reference(deliveries.tenant, true_facts(arrivals)).lines()


def test_a_path_that_was_linked_is_the_same_table_in_the_next_event(deliveries: Deliveries) -> None:
    fields = schema("x")
    events = [
        ran(1, [path("a", "s.a", schema=fields)], [path("b", "s.b", schema=fields)]),
        ran(2, [path("a", schema=fields)], [path("b", schema=fields)]),
        ran(3, [dataset(HIVE, "s.a")], [path("b")], job="other"),
    ]
    for event in events:
        deliveries.deliver([event])
    assert tables(deliveries) == {"s.a", "s.b"}
    assert deliveries.rebuilds == 0
    assert deliveries.lines() == expected(deliveries, events)


def test_a_symlink_that_comes_late_counts_for_what_was_said_before_in_every_order(
    opened: Callable[[], Deliveries], place: str
) -> None:
    lineage = {"fields": {"x": {"inputFields": [{"namespace": FILES, "name": "/wh/a", "field": "y"}]}}}
    events = [
        ran(1, [path("a")], [path("b", columnLineage=lineage)]),
        ran(2, [path("a", "s.a")], []),
        ran(3, [path("a", "s.other")], []),
        ran(4, [path("a")], [path("c")]),
    ]
    orders = list(permutations(events)) if place == "sqlite" else [events[::-1], (events[3], events[0], *events[1:3])]
    for order in orders:
        deliveries = opened()
        for event in order:
            deliveries.deliver([event])
        assert deliveries.lines() == expected(deliveries, events)
        assert tables(deliveries) == {"s.a", "s.other", "/wh/b", "/wh/c"}
        deliveries.rebuild()
        assert deliveries.lines() == expected(deliveries, events)


def test_a_path_that_only_the_end_of_its_run_links_needs_no_rebuild(opened: Callable[[], Deliveries]) -> None:
    """START names two paths that nobody has linked; COMPLETE says which tables they are. Others use the directory."""
    fields = schema("x", "y")
    lineage = {"fields": {"x": {"inputFields": [{"namespace": FILES, "name": "/wh/a", "field": "y"}]}}}
    start = ran(2, [path("a", schema=fields)], [path("b", schema=fields, columnLineage=lineage)], kind="START", run="r")
    running = ran(3, [path("a")], [path("b")], kind="RUNNING", run="r")
    complete = ran(4, [path("a", "s.a", schema=fields)], [path("b", "s.b", schema=fields)], run="r")
    elsewhere = ran(1, [], [path("c")], job="other")
    for others in ([elsewhere], []):
        for told in ([start, complete], [start, running, complete], [running, start, complete]):
            deliveries = opened()
            for event in (*others, *told):
                deliveries.deliver([event])
            assert deliveries.rebuilds == 0
            assert tables(deliveries) == {"s.a", "s.b", *("/wh/c" for _ in others)}
            assert deliveries.lines() == expected(deliveries, [*others, *told])
            deliveries.rebuild()
            assert deliveries.lines() == expected(deliveries, [*others, *told])


def test_a_column_that_a_job_reads_by_the_tables_name_and_writes_by_its_path_is_written_when_the_path_is_linked(
    opened: Callable[[], Deliveries],
) -> None:
    """Columns that were read stay; this one the job has written all along, and its next run writes others."""
    lineage = {"fields": {"y": {"inputFields": [{"namespace": HIVE, "name": "s.a", "field": "y"}]}}}
    start = ran(1, [dataset(HIVE, "s.a")], [path("a", columnLineage=lineage)], kind="START", run="r1")
    complete = ran(2, [], [path("a", "s.a", schema=schema("x"))], run="r2")
    # the job reads the column also in an event that does not name the path: then it stays
    reader = ran(3, [dataset(HIVE, "s.a", schema=schema("y"))], [], kind="START", run="r3")
    for told, columns in (([start, complete], {"x"}), ([start, reader, complete], {"x", "y"})):
        deliveries = opened()
        for event in told:
            deliveries.deliver([event])
        assert deliveries.rebuilds == 0
        lines = deliveries.lines()
        assert lines == expected(deliveries, told)
        assert {line.split('"name": "')[1][0] for line in lines if '"Column"' in line} == columns


def test_a_statement_with_which_a_catalog_made_a_table_reads_the_table_that_a_path_is_linked_to(
    opened: Callable[[], Deliveries],
) -> None:
    for order in permutations(range(3)):
        deliveries = opened()
        made = gravitino(
            "create_table",
            at_catalog("s.made", deliveries.tenant.id, schema=schema("x")),
            tenant=deliveries.tenant.id,
            eventTime=(START + timedelta(minutes=2)).isoformat(),
            inputs=[path("a")],
        )
        made["job"]["facets"] = {"sql": {"query": "create table s.made as select x from a"}}
        events = [
            ran(1, [path("a", "s.a")], []),
            Arrival(made, START, SourceType.GRAVITINO),
            ran(3, [path("a")], [path("b")]),
        ]
        for number in order:
            deliveries.deliver([events[number]])
        assert tables(deliveries) == {"s.a", "hive.s.made", "/wh/b"}
        assert deliveries.lines() == expected(deliveries, events)
        deliveries.rebuild()
        assert deliveries.lines() == expected(deliveries, events)


def test_a_crash_between_rows_and_graph_does_not_split_a_table_that_is_linked_late(deliveries: Deliveries) -> None:
    """The graph fails while START and COMPLETE become about the linked table; then the recovery runs."""
    start, complete = ran(1, [path("a")], [], kind="START", run="r"), ran(2, [path("a", "s.a")], [path("b")], run="r")
    deliveries.deliver([start])

    def fail(*_: object) -> None:
        raise GraphUnavailable("gone")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr("platform_defs.lineage.sink.commit.apply_events", fail)
        with pytest.raises(GraphUnavailable):
            deliveries.committer.commit([deliveries.prepare(complete)])
    assert tables(deliveries) == {"/wh/a"}
    deliveries.recover()
    # the client was told to send again
    deliveries.deliver([complete])
    assert deliveries.lines() == expected(deliveries, [start, complete])
    assert tables(deliveries) == {"s.a", "/wh/b"}


def test_a_client_that_sends_again_after_the_graph_failed_does_not_split_a_table_that_is_linked_late(
    deliveries: Deliveries,
) -> None:
    """The symlink is stored with the event's row, the graph fails, and the client is faster than the recovery."""
    start, complete = ran(1, [path("a")], [], kind="START", run="r"), ran(2, [path("a", "s.a")], [path("b")], run="r")
    deliveries.deliver([start])
    deliveries.committer.flush()

    def fail(*_: object) -> None:
        raise GraphUnavailable("gone")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr("platform_defs.lineage.sink.commit.apply_events", fail)
        with pytest.raises(GraphUnavailable):
            deliveries.committer.commit([deliveries.prepare(complete)])
    deliveries.deliver([complete])
    assert deliveries.rebuilds == 0
    assert tables(deliveries) == {"s.a", "/wh/b"}
    deliveries.recover()
    assert deliveries.lines() == expected(deliveries, [start, complete])


def test_two_processes_that_link_the_same_path_at_once_end_in_one_table(deliveries: Deliveries) -> None:
    start = ran(1, [path("a")], [path("b")], kind="START", run="r")
    ends = [ran(minute, [path("a", "s.a")], [path("b", "s.b")], run="r", kind=kind) for minute, kind in ENDS]
    deliveries.deliver([start])
    others = [open_committer(deliveries.engine, deliveries.graph) for _ in ends]
    prepared = [deliveries.prepare(end) for end in ends]
    failures: list[BaseException] = []

    def commit(place: int) -> None:
        try:
            others[place].commit([prepared[place]])
        except StoreUnavailable as error:  # the client sends again
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(place,)) for place in range(len(ends))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.flush()
        other.close()
    for end in ends:
        deliveries.deliver([end])
    deliveries.recover()
    assert tables(deliveries) == {"s.a", "s.b"}
    assert deliveries.lines() == expected(deliveries, [start, *ends])


def test_a_path_of_which_too_many_events_may_have_spoken_needs_a_rebuild(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_NAMED", 2)
    events = [ran(minute, [path("a")], [], job=f"j{minute}") for minute in (1, 2, 3)]
    for event in events:
        deliveries.deliver([event])
    deliveries.deliver([ran(4, [path("a", "s.a")], [])])
    assert deliveries.rebuilds == 1
    assert tables(deliveries) == {"s.a"}


def test_a_folder_whose_paths_are_all_linked_is_gone_however_many_events_have_named_it(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_NAMED", 2)
    events = [ran(minute, [path(name)], [], job=name) for minute, name in enumerate("abc", 1)]
    links = [ran(10 + minute, [path(name, f"s.{name}")], [], job=name) for minute, name in enumerate("abc", 1)]
    for event in (*events, *links[:2]):
        deliveries.deliver([event])
    assert deliveries.rebuilds == 0, "another path is still in the folder"
    deliveries.deliver(links[2:])
    assert deliveries.rebuilds == 1
    assert deliveries.lines() == expected(deliveries, [*events, *links])


def test_a_path_whose_events_are_deleted_needs_a_rebuild_that_keeps_what_they_said(deliveries: Deliveries) -> None:
    deliveries.deliver([ran(1, [path("a")], [path("b")])])
    deliveries.committer.flush()
    own = lineage_events.c.tenant_id == deliveries.tenant.id
    transact(deliveries.engine, lambda connection: connection.execute(delete(lineage_events).where(own)))
    deliveries.deliver([ran(2, [path("a", "s.a")], [])])
    assert deliveries.rebuilds == 1
    assert tables(deliveries) == {"/wh/a", "s.a", "/wh/b"}


def test_a_symlink_is_followed_one_step_and_taking_it_back_counts(deliveries: Deliveries) -> None:
    chain = dataset(HIVE, "s.a", symlinks={"identifiers": [{"namespace": HIVE, "name": "s.b", "type": "TABLE"}]})
    events = [
        ran(1, [chain], []),
        ran(2, [path("a", "s.a")], []),
        ran(3, [path("a")], []),
        ran(4, [path("a", "-")], []),
    ]
    for event in events:
        deliveries.deliver([event])
    assert deliveries.lines() == expected(deliveries, events)
    assert tables(deliveries) == {"s.b", "s.a", "/wh/a"}


def test_an_event_that_used_a_name_before_its_first_symlink_follows_a_late_one(deliveries: Deliveries) -> None:
    """The first symlink only says that the name is no other table; a late one then says that it is one."""
    events = [
        ran(3, [dataset(HIVE, "s.b")], [path("a", schema=schema("x"))]),
        ran(0, [path("a", "-")], [], job="other"),
        ran(1, [path("a", "s.a")], [], job="other"),
    ]
    for event in events:
        deliveries.deliver([event])
    assert deliveries.lines() == expected(deliveries, events)


def test_what_a_name_means_outlives_the_events_that_said_so(deliveries: Deliveries) -> None:
    deliveries.deliver([ran(1, [path("a", "s.a")], [])])
    deliveries.committer.flush()
    own = lineage_events.c.tenant_id == deliveries.tenant.id
    transact(deliveries.engine, lambda connection: connection.execute(delete(lineage_events).where(own)))
    deliveries.deliver([ran(2, [path("a")], [path("b")])])
    assert tables(deliveries) == {"s.a", "/wh/b"}
    deliveries.rebuild()
    assert tables(deliveries) == {"s.a", "/wh/b"}


def test_a_name_that_is_linked_by_another_process_while_a_group_is_written_is_found(deliveries: Deliveries) -> None:
    """Neither process sees the other's event while it writes its own."""
    plain, linked = ran(1, [path("a")], [path("b")]), ran(2, [path("a", "s.a")], [])
    other = open_committer(deliveries.engine, deliveries.graph)
    deliveries.committer.commit([deliveries.prepare(plain)])
    # as if the other process had looked for the table of the path before this process wrote it
    with pytest.MonkeyPatch.context() as patched:
        for module in ("pending", "commit"):
            patched.setattr(f"platform_defs.lineage.sink.{module}.tables_of_names", lambda *_: {})
        assert not other.commit([deliveries.prepare(linked)]).rebuild
    other.flush()
    other.close()
    assert tables(deliveries) == {"/wh/a", "s.a", "/wh/b"}
    deliveries.recover()
    assert deliveries.lines() == expected(deliveries, [plain, linked])


def test_engines_that_never_agree_what_a_path_is_cost_a_bounded_row_and_no_rebuild(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meanings, "MAX_CHANGES", 6)
    monkeypatch.setattr(meanings, "MAX_LATE", 2)
    events = [
        ran(minute, [path("a", "s.a" if minute % 2 else "s.b")], []) for minute in (1, 3, 2, 5, 4, 7, 6, 9, 8, 10)
    ]
    for event in events:
        deliveries.deliver([event])
    assert deliveries.rebuilds == 0
    (meaning,) = read_all(deliveries.engine, deliveries.tenant.id).values()
    assert len(meaning.changes) == 6
    assert len([record for record in caplog.records if "too often" in record.message]) == 1
    assert tables(deliveries) == {"s.a", "s.b"}


@pytest.mark.parametrize("busy", [False, True], ids=["a quiet tenant", "a tenant with other events"])
def test_a_path_that_is_linked_to_another_table_each_day_means_the_newest_for_ever(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """After fifty days it stood still; and the fifty rebuilds that late symlinks may cost stay fifty."""
    monkeypatch.setattr(meanings, "MAX_CHANGES", 4)
    monkeypatch.setattr(meanings, "MAX_LATE", 2)
    for day in range(0, 80, 10):
        if busy:
            deliveries.deliver([ran(day + 5, [], [dataset(HIVE, "s.else")], job="busy")])
        deliveries.deliver([ran(day + 1, [path("latest", f"s.t{day}")], [])])
        deliveries.deliver([ran(day + 6, [path("latest")], [path("out", f"s.out{day}")], job=f"reader{day}")])
        assert f"s.out{day}" in read_from(deliveries, f"s.t{day}")
    assert max(len(one.changes) for one in read_all(deliveries.engine, deliveries.tenant.id).values()) == 4
    assert deliveries.rebuilds == (2 if busy else 0)
    deliveries.rebuild()
    assert [read_from(deliveries, f"s.t{day}") for day in (50, 60, 70)] == [{"s.out50"}, {"s.out60"}, {"s.out70"}]
    # what the path meant before is forgotten, so it means the first table that is not
    assert read_from(deliveries, "s.t40") == {f"s.out{day}" for day in range(0, 50, 10)}


def read_from(deliveries: Deliveries, table: str) -> set[str]:
    """The tables that jobs write which read this one."""
    store = deliveries.graph.for_tenant(deliveries.tenant.id)
    items = list(store.stream())
    names = {item.id: item.props.get("qualifiedName") for item in items if isinstance(item, Node)}
    edges = [item for item in items if isinstance(item, Edge)]
    jobs = {edge.to_id for edge in edges if edge.type == "INPUT_OF" and names.get(edge.from_id) == table}
    return {str(names[edge.to_id]) for edge in edges if edge.type == "OUTPUT_TO" and edge.from_id in jobs}


def test_a_rebuild_ends_although_a_path_is_linked_to_other_tables_all_the_time(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meanings, "MAX_CHANGES", 3)
    deliveries.deliver([ran(minute, [path("a", f"s.t{minute}")], []) for minute in range(3)])
    deliveries.deliver([ran(10, [path("a")], [path("b")], job="reader")])
    minutes = iter(range(20, 99))
    begin = RebuiltNames.begin

    def relinked_before(names: RebuiltNames) -> None:
        minute = next(minutes)
        deliveries.committer.commit([deliveries.prepare(ran(minute, [path("a", f"s.t{minute}")], []))])
        begin(names)

    monkeypatch.setattr(RebuiltNames, "begin", relinked_before)
    deliveries.rebuild()
    assert next(minutes) < 30
    assert "/wh/b" in read_from(deliveries, "s.t2")


def test_a_rebuild_finds_all_missing_symlinks_of_a_name_at_once(deliveries: Deliveries) -> None:
    """Each that it added made the next one count, which took a reading of all events each, and five were the most."""
    deliveries.deliver([ran(minute, [path("a", f"s.{table}")], []) for minute, table in enumerate("abababababab")])
    deliveries.deliver([ran(20, [path("a")], [path("b")])])
    own = lineage_symlink.c.tenant_id == deliveries.tenant.id
    with deliveries.engine.begin() as connection:
        links = connection.scalars(select(lineage_symlink.c.links).where(own)).one()
        connection.execute(update(lineage_symlink).where(own).values(links={**links, "tables": links["tables"][:1]}))
    readings: list[RebuiltNames] = []
    begin = RebuiltNames.begin

    def counted(names: RebuiltNames) -> None:
        readings.append(names)
        begin(names)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RebuiltNames, "begin", counted)
        deliveries.rebuild()
    # one that finds what is missing, one for the graph, and one for what came meanwhile
    assert len(readings) == 3
    assert tables(deliveries) == {"s.a", "s.b", "/wh/b"}


_A, _B, _C = (Ref("table", ("m", "c", "s", name)) for name in "abc")


_said = st.lists(st.sampled_from([_A, _B, _C]), max_size=12)


@given(_said.flatmap(lambda said: st.permutations(list(enumerate(said)))))
def test_the_newest_changes_are_kept_whatever_the_order_in_which_they_are_read(said: list[tuple[int, Ref]]) -> None:
    links = [(Version(f"{at:032x}"), table) for at, table in said]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(meanings, "MAX_CHANGES", 3)
        meaning = Meaning()
        for link in links:
            if meaning.at(link[0]) != link[1] and meaning.keeps(link[0]):
                meaning = meaning.with_symlinks([link])
        # as a rebuild does it
        meaning = meaning.with_symlinks(links)
        assert not [one for one in links if meaning.at(one[0]) != one[1] and meaning.keeps(one[0])]
    assert len(meaning.changes) <= 3
    true = dict(links)
    for version in true if meaning.changes else ():
        if version >= meaning.changes[0][0]:
            assert meaning.at(version) == true[version]


def test_a_tenant_without_symlinks_costs_no_lookup_of_names(deliveries: Deliveries) -> None:
    deliveries.deliver([ran(1, [path("a")], [path("b")])])
    query = select(lineage_symlink).where(lineage_symlink.c.tenant_id == deliveries.tenant.id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(symlinks, "read_meanings", lambda *_: pytest.fail("looked up names"))
        deliveries.deliver([ran(2, [path("a")], [path("b")])])
    with deliveries.engine.connect() as connection:
        assert not connection.execute(query).all()


def test_only_changes_of_the_meaning_are_kept() -> None:
    a, b = (Ref("table", ("m", "c", "s", name)) for name in ("a", "b"))
    versions = [Version(f"{at:032x}") for at in range(9)]
    meaning = Meaning().with_symlinks([(versions[4], b), (versions[2], a), (versions[3], a)])
    assert meaning.changes == ((versions[2], a), (versions[4], b))
    assert [meaning.at(version) for version in versions[1:6]] == [a, a, a, b, b]


_name = st.sampled_from(["a", "b"])
_dataset = st.builds(
    path,
    _name,
    st.sampled_from([None, None, None, "s.a", "s.b", "-"]),
    schema=st.sampled_from([schema("x"), schema("x", "y"), {}]),
)
_hive = st.builds(dataset, st.just(HIVE), st.sampled_from(["s.a", "s.b"]))
_lineage = st.builds(
    lambda source, column: {
        "columnLineage": {
            "fields": {"x": {"inputFields": [{"namespace": FILES, "name": f"/wh/{source}", "field": column}]}}
        }
    },
    _name,
    st.sampled_from(["x", "y"]),
)
_changes = st.builds(
    lambda change: (
        {"lifecycleStateChange": {"lifecycleStateChange": "DROP"} | change}
        if not change
        else {"lifecycleStateChange": {"lifecycleStateChange": "RENAME", "previousIdentifier": change}}
    ),
    st.sampled_from([{}, {"namespace": FILES, "name": "/wh/a"}, {"namespace": HIVE, "name": "s.a"}]),
)


@st.composite
def _arrivals(draw: st.DrawFn) -> list[list[Arrival]]:
    """Some events are of the far future: these are ordered by their arrival, which is between those of others."""
    events: list[Arrival] = []
    for minute in range(draw(st.integers(2, 7))):
        ahead = draw(st.integers(0, 3)) == 0
        write = draw(_dataset | _hive)
        write["facets"] = {**write["facets"], **draw(st.sampled_from([{}, {}, draw(_lineage), draw(_changes)]))}
        events.append(
            ran(
                minute + 60 * 24 * 365 if ahead else minute,
                [draw(_dataset | _hive)],
                [write],
                job=draw(st.sampled_from("jk")),
                arrived=draw(st.integers(0, 6)) + 0.5 if ahead else 1e6,
                kind=draw(st.sampled_from(["START", "COMPLETE", "COMPLETE", "FAIL"])),
                run=draw(st.sampled_from([None, "r1", "r2"])),
                sql=draw(st.sampled_from([None, None, "insert into s.b select x, y from s.a"])),
            )
        )
    arriving = draw(st.permutations([*events, *draw(st.lists(st.sampled_from(events), max_size=2))]))
    cuts = sorted({0, len(arriving), *draw(st.lists(st.integers(1, len(arriving)), max_size=4))})
    return [list(arriving[begin:end]) for begin, end in pairwise(cuts)]


def test_late_symlinks_and_future_times_in_any_order_end_in_the_reference_and_in_the_rebuild(
    opened: Callable[[], Deliveries], place: str
) -> None:
    @settings(max_examples=examples(EXAMPLES[place]), deadline=None, suppress_health_check=list(HealthCheck))
    @given(_arrivals())
    def same(groups: list[list[Arrival]]) -> None:
        deliveries = opened()
        for group in groups:
            deliveries.deliver(group)
        wanted = expected(deliveries, [one for group in groups for one in group])
        assert deliveries.lines() == wanted
        deliveries.rebuild()
        assert deliveries.lines() == wanted

    same()

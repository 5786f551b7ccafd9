"""For tests of the merge: generated events about a few names, a store of plain dicts, and delivery in groups."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st

from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import BatchResult, Edge, EdgeKey, Node, Operation, UpsertEdges, UpsertNodes
from platform_defs.graph.port import GraphStore, GraphTransaction
from platform_defs.graph.steps import merge_props
from platform_defs.lineage.facts import (
    SPEAKER,
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Fact,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Statement,
    Unlinked,
)
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import Version
from tests.graph.plain_model import PlainModel

T = TypeVar("T")


def examples(number: int) -> int:
    """How many examples a property test draws: PLATFORM_TEST_EXAMPLES is how many times as many as usual."""
    return number * int(os.environ.get("PLATFORM_TEST_EXAMPLES", "1"))


CATALOG = Ref("catalog", ("m", "c"))
SCHEMAS = [Ref("schema", (*CATALOG.name, name)) for name in ("s", "z")]
TABLES = [Ref("table", (*SCHEMAS[0].name, name)) for name in ("a", "b", "c")] + [Ref("table", (*SCHEMAS[1].name, "a"))]
TAGS = [Ref("tag", (name,)) for name in ("t", "u")]
METRICS = [Ref("metric", (name,)) for name in ("m", "n")]
SQLS = [Ref("sql", (name,)) for name in ("q", "r")]
COLUMNS = ("x", "y", "w")
DERIVES = frozenset({"DERIVES_FROM"})


def column(table: Ref, name: str) -> Ref:
    return Ref("column", (*table.name, name))


class PlainStore:
    """A graph store made of plain dicts, so that tests of the merge need no database."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self.model = PlainModel()
        self.reads: list[str] = []

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        return work(self)

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        steps = list(operations)
        for step in steps:
            if isinstance(step, UpsertNodes):
                assert all("\x00" not in node.id for node in step.nodes)
            self.model.apply([step])
            if isinstance(step, UpsertEdges):
                assert all(edge.key in self.model.links for edge in step.edges), "an edge without its ends"
        return BatchResult()

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        self.reads.append("nodes")
        found = {item.id: item for item in self.model.stream() if isinstance(item, Node)}
        return {id: Node(id, frozenset(found[id].labels), dict(found[id].props)) for id in ids if id in found}

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        self.reads.append("edges")
        return [
            Edge(*key, dict(props))
            for key, props in self.model.links.items()
            if (key.from_id in ids or key.to_id in ids) and (types is None or key.type in types)
        ]

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        self.reads.append("edges_by_key")
        return {key: Edge(*key, merge_props(self.model.links[key], {})) for key in keys if key in self.model.links}

    def stream(self) -> Iterator[Node | Edge]:
        return self.model.stream()

    def clear(self) -> None:
        self.model = PlainModel()


# strategies: every draw is the list of facts of one event

tables = st.sampled_from(TABLES)
names = st.sampled_from(COLUMNS)
columns = st.builds(column, tables, names)
words = st.sampled_from(["p", "q", None])
column_props = st.fixed_dictionaries({}, optional={"dataType": words, "description": words})
table_props = st.fixed_dictionaries(
    {}, optional={"description": words, "producer": words, "properties.k": words, "properties.l": words}
)


def exists(ref: Ref, props: Mapping[str, Any], all_entries: bool = False) -> list[Fact]:
    labels = {
        "table": "Table",
        "column": "Column",
        "schema": "Schema",
        "catalog": "Catalog",
        "tag": "Tag",
        "sql": "SQL",
    }
    return [Exists(ref, labels[ref.kind], {**props, "name": ref.name[-1]}, all_entries)]


def loaded(
    table: Ref, props: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]], all_entries: bool = False
) -> list[Fact]:
    some = tuple(Exists(column(table, name), "Column", given[name]) for name in given)
    return [Exists(table, "Table", props, all_entries), ColumnSet(table, some)]


def tagged(asset: Ref, tags: list[Ref]) -> list[Fact]:
    return [LinkSet(asset, frozenset({"HAS_TAG"}), tuple(Linked("HAS_TAG", asset, tag) for tag in tags))]


def registered(metric: Ref, label: str, schema: Ref, measured: list[Ref], unit: str | None) -> list[Fact]:
    links = tuple(Linked("MEASURES", metric, one) for one in measured)
    return [
        Exists(metric, label, {"code": metric.name[0], "unit": unit}),
        Exists(schema, "Schema"),
        Linked("HAS_METRIC", schema, metric),
        LinkSet(metric, frozenset({"MEASURES"}), links),
    ]


def ran(sql: Ref, source: Ref, target: Ref, pair: tuple[str, str], kind: str, with_columns: bool) -> list[Fact]:
    begin, end = column(source, pair[0]), column(target, pair[1])
    facts: list[Fact] = [
        Exists(source, "Table", {"producer": kind}),
        Exists(target, "Table"),
        Exists(sql, "SQL", {"content": "insert"}),
        Linked("INPUT_OF", source, sql),
        Linked("OUTPUT_TO", sql, target),
    ]
    if with_columns:
        facts += [Exists(begin, "Column"), Exists(end, "Column"), Linked("DERIVES_FROM", end, begin, {"type": kind})]
    return facts


def derived(output: Ref, source: Ref, kind: str) -> list[Fact]:
    return [
        Exists(output, "Column"),
        Exists(source, "Column"),
        Linked("DERIVES_FROM", output, source, {"type": kind}),
    ]


def underived(table: Ref) -> list[Fact]:
    return [ColumnsUnlinked(table, DERIVES)]


plain_events = st.one_of(
    st.builds(exists, tables, table_props, st.booleans()),
    st.builds(exists, columns, column_props),
    st.builds(exists, st.sampled_from([*SCHEMAS, CATALOG, *TAGS]), table_props, st.booleans()),
    st.builds(loaded, tables, table_props, st.dictionaries(names, column_props), st.booleans()),
    st.builds(loaded, tables, table_props, st.sampled_from([{"x": {}}, {"x": {"dataType": "p"}, "y": {}}])),
    st.builds(lambda ref: [Dropped(ref)], st.one_of(tables, columns, st.sampled_from([*TAGS, *METRICS, *SQLS]))),
    st.builds(lambda ref: [Dropped(ref)], st.sampled_from([*SCHEMAS, CATALOG])),
    st.builds(tagged, st.one_of(tables, columns), st.lists(st.sampled_from(TAGS), unique=True)),
    st.builds(lambda ref, tag: [Linked("HAS_TAG", ref, tag)], st.one_of(tables, columns), st.sampled_from(TAGS)),
    st.builds(lambda ref, tag: [Unlinked("HAS_TAG", ref, tag)], st.one_of(tables, columns), st.sampled_from(TAGS)),
    st.builds(lambda ref, sql: [Unlinked("INPUT_OF", ref, sql)], tables, st.sampled_from(SQLS)),
    st.builds(
        registered,
        st.sampled_from(METRICS),
        st.sampled_from(["AtomicMetric", "DerivedMetric"]),
        st.sampled_from(SCHEMAS),
        st.lists(columns, max_size=2, unique=True),
        words,
    ),
    st.builds(
        ran,
        st.sampled_from(SQLS),
        tables,
        tables,
        st.tuples(names, names),
        st.sampled_from(["DIRECT", "INDIRECT"]),
        st.booleans(),
    ),
    st.builds(derived, columns, columns, st.sampled_from(["DIRECT", "INDIRECT"])),
    st.builds(underived, tables),
    st.builds(lambda table, *link: [*underived(table), *derived(*link)], tables, columns, columns, st.just("DIRECT")),
    st.builds(lambda ref, name: [Dropped(ref), *exists(column(ref, name), {})], tables, names),
)
JOBS = [Ref(SPEAKER, ("job", "n", name)) for name in ("j", "k")]


def stated(
    job: Ref,
    run: str,
    kind: str,
    sql: Ref,
    source: Ref,
    target: Ref,
    written: Mapping[str, Mapping[str, Any]],
    pairs: Sequence[tuple[str, str]],
    extras: Sequence[str],
) -> list[Fact]:
    """An event of a run: source, target and SQL exist; the rest is a statement. extras: what it leaves out or adds."""
    if "empty" in extras:
        return [Statement(job, run, kind == "COMPLETE", names_dataset=False)]
    links = [Linked("INPUT_OF", source, sql)]
    columns: dict[str, Mapping[str, Any]] = {}
    read: dict[Ref, Exists] = {column(source, "w"): Exists(column(source, "w"), "Column", {"dataType": kind})}
    if "input only" not in extras:
        links.append(Linked("OUTPUT_TO", sql, target))
        columns = {**{end: {} for _, end in pairs}, **written}
        for begin, end in pairs:
            read.setdefault(column(source, begin), Exists(column(source, begin), "Column"))
            links.append(Linked("DERIVES_FROM", column(target, end), column(source, begin), {"type": job.name[-1]}))
        if "whole" in extras:
            links.append(Linked("DERIVES_FROM", target, column(source, "w")))
    given = {column(target, name): Exists(column(target, name), "Column", props) for name, props in columns.items()}
    statement = Statement(
        job,
        run,
        kind == "COMPLETE",
        names_dataset=True,
        outputs=() if "input only" in extras else (target,),
        written=tuple(given.values()),
        read=tuple(one for ref, one in read.items() if ref not in given),
        links=tuple(links),
    )
    return [Exists(source, "Table"), Exists(target, "Table"), Exists(sql, "SQL"), statement]


def statements(jobs: Sequence[Ref], some: st.SearchStrategy[Ref]) -> st.SearchStrategy[list[Fact]]:
    typed = st.fixed_dictionaries({}, optional={"dataType": st.sampled_from(["p", "q"])})
    x_or_y = st.sampled_from(["x", "y"])
    return st.builds(
        stated,
        st.sampled_from(jobs),
        st.sampled_from(["r1", "r2", "r3"]),
        st.sampled_from(["START", "COMPLETE", "COMPLETE"]),
        st.sampled_from(SQLS),
        some,
        some,
        st.dictionaries(x_or_y, typed, max_size=2),
        st.lists(st.tuples(x_or_y, x_or_y), max_size=2, unique=True),
        st.lists(st.sampled_from(["empty", "input only", "whole"]), max_size=1),
    )


renames = st.one_of(
    st.builds(lambda ref, new: [Renamed(ref, new), Exists(new, "Table")], tables, tables),
    st.builds(lambda ref, new: [Renamed(ref, new)], tables, tables),
    st.builds(lambda table, one, two: [Renamed(column(table, one), column(table, two))], tables, names, names),
)


@st.composite
def histories(
    draw: st.DrawFn, events: st.SearchStrategy[list[Fact]], first: Sequence[list[Fact]] = ()
) -> tuple[list[EventFacts], list[list[EventFacts]]]:
    """Events in the order of their versions, and the groups in which they arrive: shuffled, some twice.

    Some events say the same as others, at another time: with so few names that finds more than new events do.
    first: events that come before those that are drawn.
    """
    said = [*first, *draw(st.lists(events, min_size=1, max_size=8))]
    again = draw(st.lists(st.tuples(st.sampled_from(said), st.integers(0, len(said))), max_size=2))
    for facts, place in again:
        said.insert(place, facts)
    in_order = [EventFacts(Version(f"{at:016x}{0:016x}"), tuple(facts)) for at, facts in enumerate(said, 1)]
    twice = draw(st.lists(st.sampled_from(in_order), max_size=3))
    arriving = draw(st.permutations([*in_order, *twice]))
    cuts = sorted({0, len(arriving), *draw(st.lists(st.integers(1, len(arriving)), max_size=5))})
    return in_order, [arriving[begin:end] for begin, end in pairwise(cuts)]


def arrive(store: GraphStore, tenant: Tenant, groups: Sequence[Sequence[EventFacts]]) -> int:
    """Applies the groups as the sink does; returns how often the graph had to be rebuilt from all events so far."""
    rebuilds = 0
    for at, group in enumerate(groups):
        if apply_events(store, tenant, group).needs_rebuild:
            rebuilds += 1
            store.clear()
            so_far = {event.version: event for some in groups[: at + 1] for event in some}
            assert not apply_events(store, tenant, [so_far[version] for version in sorted(so_far)]).needs_rebuild
    return rebuilds


# Few names and few events, so that events often concern the same asset: columns of one table, metrics of one schema,
# sets that replace older ones, renames.

_x_or_y = st.sampled_from([column(TABLES[0], name) for name in ("x", "y")])
_dropped = st.builds(lambda ref: [Dropped(ref)], _x_or_y)
_typed = st.fixed_dictionaries({}, optional={"dataType": st.sampled_from(["p", "q"])})
column_events = st.one_of(
    st.builds(loaded, st.just(TABLES[0]), st.just({}), st.dictionaries(st.sampled_from(["x", "y"]), _typed)),
    st.builds(loaded, st.just(TABLES[0]), st.just({}), st.just({"x": {"dataType": "p"}})),
    st.builds(exists, _x_or_y, st.sampled_from([{}, {"dataType": "r"}, {"description": "d"}])),
    _dropped,
    st.builds(lambda ref: [Dropped(ref)], st.just(TABLES[0])),
    st.builds(lambda ref: [Linked("HAS_TAG", ref, TAGS[0]), Exists(TAGS[0], "Tag")], _x_or_y),
)
metric_events = st.one_of(
    st.builds(
        registered,
        st.just(METRICS[0]),
        st.sampled_from(["AtomicMetric", "DerivedMetric"]),
        st.sampled_from(SCHEMAS),
        st.just([]),
        words,
    ),
    st.builds(lambda unit: [Exists(METRICS[0], "AtomicMetric", {"unit": unit})], words),
    st.builds(lambda schema: [Unlinked("HAS_METRIC", schema, METRICS[0])], st.sampled_from(SCHEMAS)),
    st.builds(lambda ref: [Dropped(ref)], st.sampled_from([*SCHEMAS, CATALOG, METRICS[0]])),
)
_entries = st.fixed_dictionaries({}, optional={"properties.k": words, "properties.l": st.just("p")})
entry_events = st.one_of(
    st.builds(exists, st.just(TABLES[0]), _entries, st.booleans()),
    st.builds(exists, st.just(TABLES[0]), _entries, st.booleans()),
    st.builds(lambda ref: [Dropped(ref)], st.sampled_from([TABLES[0], SCHEMAS[0]])),
)
_derived = st.builds(derived, _x_or_y, st.just(column(TABLES[1], "w")), st.sampled_from(["p", "q"]))
derived_events = st.one_of(
    _derived,
    st.builds(underived, st.sampled_from(TABLES[:2])),
    st.builds(lambda taken, said: [*taken, *said], st.builds(underived, st.just(TABLES[0])), _derived),
    st.builds(loaded, st.just(TABLES[0]), st.just({}), st.sampled_from([{"x": {}}, {"x": {}, "y": {}}])),
    st.builds(lambda ref: [LinkSet(ref, DERIVES, ())], _x_or_y),
    st.builds(lambda ref: [Dropped(ref)], st.sampled_from([TABLES[0], SCHEMAS[0], column(TABLES[0], "x")])),
)
_a_or_b = st.sampled_from(TABLES[:2])
moving_wholes = st.one_of(
    st.builds(exists, _a_or_b, _entries, st.booleans()),
    st.builds(derived, st.builds(column, _a_or_b, st.just("x")), st.just(column(TABLES[2], "w")), st.just("p")),
    st.builds(underived, _a_or_b),
    st.builds(lambda ref, new: [Renamed(ref, new)], _a_or_b, _a_or_b),
)
_two = st.sampled_from([TABLES[0], TABLES[1], TABLES[3]])
moving_events = st.one_of(
    st.builds(exists, _two, st.sampled_from([{}, {"description": "p"}, {"producer": "q"}])),
    st.builds(loaded, _two, st.just({}), st.sampled_from([{"x": {}}, {"y": {"dataType": "p"}}])),
    st.builds(exists, st.builds(column, _two, st.sampled_from(["x", "y"])), _typed),
    st.builds(lambda ref: [Dropped(ref)], st.one_of(_two, st.builds(column, _two, st.just("x")))),
    st.builds(lambda ref: [Dropped(ref)], st.sampled_from(SCHEMAS)),
    st.builds(tagged, _two, st.lists(st.just(TAGS[0]), max_size=1)),
    st.builds(lambda ref: [Linked("INPUT_OF", ref, SQLS[0]), Exists(SQLS[0], "SQL")], _two),
    st.builds(lambda ref, new: [Renamed(ref, new)], _two, _two),
    st.builds(lambda table: [Renamed(column(table, "x"), column(table, "y"))], _two),
)

# Statements of jobs: alone, with a catalog that drops what jobs say, and with renames.
_one_table = st.sampled_from(TABLES[:2])
spoken_events = statements(JOBS, _one_table)
spoken_and_dropped_events = st.one_of(
    spoken_events,
    spoken_events,
    st.builds(loaded, st.just(TABLES[0]), st.just({}), st.sampled_from([{"x": {}}, {"x": {"dataType": "c"}, "y": {}}])),
    st.builds(underived, _one_table),
    st.builds(lambda ref: [Dropped(ref)], st.sampled_from([TABLES[0], SCHEMAS[0], column(TABLES[0], "x"), SQLS[0]])),
    st.builds(lambda ref: [Unlinked("INPUT_OF", ref, SQLS[0])], _one_table),
)
spoken_and_moved_events = st.one_of(
    spoken_events,
    spoken_events,
    st.builds(lambda ref, new: [Renamed(ref, new)], _one_table, _one_table),
    st.builds(lambda ref: [Dropped(ref)], _one_table),
)
spoken_and_renamed_columns = st.one_of(
    spoken_events,
    spoken_events,
    st.builds(
        lambda table, one, two: [Renamed(column(table, one), column(table, two))],
        _one_table,
        st.sampled_from(["x", "y", "v"]),
        st.sampled_from(["x", "y", "v"]),
    ),
)

# All that makes statements hard to follow at once: tables that become one, columns that are renamed twice, drops of
# tables, columns and lineage before and after.
_three = st.sampled_from(TABLES[:3])
_xyv = st.sampled_from(["x", "y", "v"])
_spoken_of_three = statements(JOBS, _three)
spoken_and_joined_events = st.one_of(
    _spoken_of_three,
    _spoken_of_three,
    _spoken_of_three,
    st.builds(lambda ref, new: [Renamed(ref, new)], _three, _three),
    st.builds(lambda ref, new: [*exists(new, {}), Renamed(ref, new)], _three, _three),
    st.builds(lambda table, one, two: [Renamed(column(table, one), column(table, two))], _three, _xyv, _xyv),
    st.builds(lambda ref: [Dropped(ref)], st.one_of(_three, st.builds(column, _three, _xyv))),
    st.builds(loaded, _three, st.just({}), st.sampled_from([{}, {"x": {}}, {"v": {}, "y": {"dataType": "c"}}])),
    st.builds(underived, _three),
    st.builds(lambda ref: [LinkSet(ref, DERIVES, ())], st.builds(column, _three, _xyv)),
)

# More jobs and runs than are remembered, if the bounds are lowered (test_bounds.py). As in real events, an SQL node
# belongs to one job.
MANY_JOBS = [Ref(SPEAKER, ("job", "n", f"j{number}")) for number in range(5)]


def _stated_by_own_sql(job: Ref, run: str, kind: str, *rest: Any) -> list[Fact]:
    return stated(job, run, kind, Ref("sql", (job.name[-1],)), *rest)


def _many_statements(
    jobs: Sequence[Ref], runs: Sequence[str], kinds: Sequence[str] = ("START", "COMPLETE", "COMPLETE")
) -> st.SearchStrategy[list[Fact]]:
    x_or_y = st.sampled_from(["x", "y"])
    return st.builds(
        _stated_by_own_sql,
        st.sampled_from(jobs),
        st.sampled_from(runs),
        st.sampled_from(kinds),
        *(st.sampled_from([TABLES[0], *TABLES[:2]]), st.sampled_from([TABLES[1], *TABLES[:2]])),
        st.dictionaries(x_or_y, _typed, max_size=2),
        st.lists(st.tuples(x_or_y, x_or_y), max_size=2, unique=True),
        st.lists(st.sampled_from(["empty", "input only", "whole"]), max_size=1),
    )


_ends_of_claims = st.one_of(
    st.builds(loaded, _one_table, st.just({}), st.sampled_from([{}, {"x": {}}, {"x": {"dataType": "c"}, "y": {}}])),
    st.builds(lambda ref: [Dropped(ref)], st.builds(column, _one_table, st.sampled_from(["x", "y", "w"]))),
    st.builds(lambda ref: [Dropped(ref)], _one_table),
    st.builds(underived, _one_table),
    st.builds(lambda ref: [LinkSet(ref, DERIVES, ())], st.builds(column, _one_table, st.sampled_from(["x", "y"]))),
)
_renames_of_claimed = st.one_of(
    st.builds(lambda ref, new: [Renamed(ref, new)], _one_table, _three),
    st.builds(lambda ref, new: [*exists(new, {}), Renamed(ref, new)], _one_table, _three),
    st.builds(lambda table, one, two: [Renamed(column(table, one), column(table, two))], _one_table, _xyv, _xyv),
)
_crowd = _many_statements(MANY_JOBS, ["r1", "r2"])
crowded_events = st.one_of(_crowd, _crowd, _crowd, _ends_of_claims)
crowded_and_moved_events = st.one_of(_crowd, _crowd, _crowd, _ends_of_claims, _renames_of_claimed)
_runs = _many_statements(MANY_JOBS[:1], [f"r{number}" for number in range(6)])
many_runs_events = st.one_of(_runs, _runs, _runs, _runs, _ends_of_claims)
many_runs_and_moved_events = st.one_of(_runs, _runs, _runs, _runs, _ends_of_claims, _renames_of_claimed)
_open_runs = _many_statements(MANY_JOBS[:1], [f"r{number}" for number in range(6)], ["START"] * 5 + ["COMPLETE"])
open_runs_events = st.one_of(_open_runs, _open_runs, _open_runs, _open_runs, _ends_of_claims)
open_runs_and_moved_events = st.one_of(
    _open_runs, _open_runs, _open_runs, _open_runs, _ends_of_claims, _renames_of_claimed
)
# more jobs on one column and one edge, and more runs of one job, than are remembered then
CROWD = [_stated_by_own_sql(job, "r1", "COMPLETE", *TABLES[:2], {"x": {}}, [("x", "x")], []) for job in MANY_JOBS]
MANY_RUNS = [
    _stated_by_own_sql(MANY_JOBS[0], f"r{number}", kind, *TABLES[:2], {name: {}}, [("x", name)], [])
    for number, (kind, name) in enumerate([("COMPLETE", "x"), ("START", "y"), ("START", "x"), ("COMPLETE", "y")])
]
# more uncompleted runs that count than are remembered then
OPEN_RUNS = [
    _stated_by_own_sql(MANY_JOBS[0], f"r{number}", "START", *TABLES[:2], {name: {}}, [("x", name)], [])
    for number, name in enumerate(["x", "y", "z"])
]

# Runs of one job that repeat themselves: each event makes one of a few statements, so that runs which are not
# remembered any more say what newer ones say too.
_SAID_AGAIN: list[tuple[Ref, Ref, dict[str, dict[str, Any]], list[tuple[str, str]], list[str]]] = [
    (TABLES[0], TABLES[1], {"x": {}}, [("x", "x")], []),
    (TABLES[0], TABLES[1], {"x": {}}, [], []),
    (TABLES[0], TABLES[1], {}, [], ["input only"]),
    (TABLES[0], TABLES[2], {"x": {}}, [("y", "x")], []),
    (TABLES[0], TABLES[1], {}, [], ["empty"]),
]
_repeating = st.builds(
    lambda run, kind, said: _stated_by_own_sql(MANY_JOBS[0], run, kind, *said),
    st.sampled_from([f"r{number}" for number in range(6)]),
    st.sampled_from(["START", "START", "COMPLETE"]),
    st.sampled_from(_SAID_AGAIN),
)
repeating_runs_events = st.one_of(_repeating, _repeating, _repeating, _repeating, _repeating, _ends_of_claims)
REPEATING_RUNS = [
    _stated_by_own_sql(MANY_JOBS[0], f"r{number}", kind, *_SAID_AGAIN[place])
    for number in range(4)
    for kind, place in (("START", 1), ("COMPLETE", 0))
]

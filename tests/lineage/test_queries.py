"""Questions to the graph, on every store: names, up and down the lineage, runs; in few queries, and never in a loop."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, delete, event

from platform_defs.access.principal import Principal, SourceType
from platform_defs.graph.neo4j_store import Neo4jStore
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import AmbiguousName, NameNotFound
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.query import runs as runs_module
from platform_defs.lineage.query.drawing import draw
from platform_defs.lineage.query.names import resolve, search
from platform_defs.lineage.query.runs import runs_of
from platform_defs.lineage.query.walk import Walk, walk
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.rows import stored_rows
from platform_defs.store.tables.lineage import lineage_events
from tests.graph.conftest import GRAPHS
from tests.lineage.fetches import count_fetched
from tests.lineage.test_merge_stores import START, new_tenant, open_graphs
from tests.lineage.wire import dataset, run_event, schema

__all__ = ["open_graphs"]
SHOP = "mysql://shop"
Names = list[str]


class Shop:
    """A tenant whose jobs report what they read and write."""

    def __init__(self, engine: Engine, graph: Graph) -> None:
        self.engine = engine
        self.tenant = new_tenant()
        self.store = graph.for_tenant(self.tenant.id)
        self._source = Principal("key", "spark", frozenset(), SourceType.COMPUTE, self.tenant)
        self._intake = Intake(KnownTenants(engine))
        self._committer = open_committer(engine, graph)
        self._minute = 0

    def post(self, *raws: dict[str, Any]) -> None:
        prepared = []
        for raw in raws:
            self._minute += 1
            time = (START + timedelta(minutes=self._minute)).isoformat()
            prepared.append(self._intake.prepare(self._source, {**raw, "eventTime": time}).prepared)
        self._committer.commit(prepared)
        self._committer.flush()

    def up(self, name: str, *, depth: int = 5, limit: int = 1000) -> Walk:
        return walk(self.store, resolve(self.store, name), upstream=True, depth=depth, limit=limit)

    def down(self, name: str, *, depth: int = 5, limit: int = 1000) -> Walk:
        return walk(self.store, resolve(self.store, name), upstream=False, depth=depth, limit=limit)

    def close(self) -> None:
        self._committer.close()
        self.store.clear()
        with self.engine.begin() as connection:
            connection.execute(delete(lineage_events).where(lineage_events.c.tenant_id == self.tenant.id))


@pytest.fixture(params=GRAPHS)
def shop(
    request: pytest.FixtureRequest, migrated: dict[str, Engine], open_graphs: Callable[[str], Graph]
) -> Iterator[Shop]:
    made = Shop(migrated["sqlite" if request.param == "neo4j" else request.param], open_graphs(request.param))
    yield made
    made.close()


def ran(job: str, reads: Names, writes: Names, *, run: str | None = None, kind: str = "COMPLETE") -> dict[str, Any]:
    return run_event(
        eventType=kind,
        run={"runId": run or str(uuid.uuid4())},
        job={"namespace": "etl", "name": job},
        inputs=[dataset(SHOP, name) for name in reads],
        outputs=[dataset(SHOP, name) for name in writes],
    )


def derived(job: str, table: str, fields: dict[str, Names], *, whole: Names = ()) -> dict[str, Any]:  # type: ignore[assignment]
    """A job that fills columns of a table; sources are written `table.column`."""

    def source(text: str, **more: Any) -> dict[str, Any]:
        owner, _, column = text.rpartition(".")
        return {"namespace": SHOP, "name": owner, "field": column, **more}

    facet = {
        "fields": {name: {"inputFields": [source(text) for text in texts]} for name, texts in fields.items()},
        "dataset": [source(text, transformations=[{"type": "INDIRECT", "subtype": "FILTER"}]) for text in whole],
    }
    named = {text.rpartition(".")[0] for texts in (*fields.values(), whole) for text in texts}
    made = ran(job, sorted(named), [])
    return {**made, "outputs": [dataset(SHOP, table, schema=schema(*fields), columnLineage=facet)]}


def tree(found: Walk) -> Names:
    return draw(found, "tree").splitlines()


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """All statements that either store is sent meanwhile."""
    sent: Names = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement != "BEGIN":
            sent.append(statement)

    execute = Neo4jStore._execute

    def counting(self: Neo4jStore, tx: Any, template: str, *others: Any, **parameters: Any) -> Any:
        sent.append(template)
        return execute(self, tx, template, *others, **parameters)

    event.listen(Engine, "before_cursor_execute", note)
    monkeypatch.setattr(Neo4jStore, "_execute", counting)
    yield sent
    event.remove(Engine, "before_cursor_execute", note)
    monkeypatch.undo()


def test_the_tree_shows_tables_and_the_jobs_between_them_in_both_directions(shop: Shop) -> None:
    shop.post(
        ran("ingest", [], ["raw.orders"]),
        ran("stage", ["raw.orders", "raw.shops"], ["staging.orders"]),
        ran("mart", ["staging.orders"], ["mart.sales"]),
        ran("again", ["staging.orders"], ["mart.sales"]),
    )
    assert tree(shop.up("mart.sales")) == [
        "mart.sales  [mysql://shop]",
        "└── staging.orders  by etl/again, etl/mart",
        "    ├── raw.orders  by etl/stage",
        "    │   └── (etl/ingest reads no table)",
        "    └── raw.shops  by etl/stage",
    ]
    assert tree(shop.down("raw.shops"))[1:] == [
        "└── staging.orders  by etl/stage",
        "    └── mart.sales  by etl/again, etl/mart",
    ]
    assert tree(shop.down("mart.sales")) == ["mart.sales  [mysql://shop]", "└── nothing is known downstream"]


def test_a_name_is_found_by_its_end_and_in_any_case_and_the_closest_counts(shop: Shop) -> None:
    shop.post(ran("stage", ["raw.orders", "Raw.Shops"], ["orders", "mart.orders_per_day"]))
    assert resolve(shop.store, "orders").name == "orders"
    assert resolve(shop.store, "raw.orders").name == "raw.orders"
    assert resolve(shop.store, "RAW.SHOPS").name == resolve(shop.store, "shops").name == "Raw.Shops"
    for unknown in ("ders", "mart", "orders_per", "raw.", ".", "", "%", "_", "raw_orders"):
        with pytest.raises(NameNotFound):
            resolve(shop.store, unknown)


def test_an_ambiguous_name_lists_what_it_could_mean_and_the_namespace_decides(shop: Shop) -> None:
    other = dataset("hive://lake", "raw.orders")
    shop.post(ran("stage", ["raw.orders", "mart.orders"], []), {**ran("copy", [], []), "outputs": [other]})
    with pytest.raises(AmbiguousName) as refused:
        resolve(shop.store, "orders")
    assert refused.value.meanings == [("mart.orders", SHOP), ("raw.orders", "hive://lake"), ("raw.orders", SHOP)]
    with pytest.raises(AmbiguousName):
        resolve(shop.store, "raw.orders")
    assert resolve(shop.store, "raw.orders", namespace="hive://lake").namespace == "hive://lake"


def test_a_column_is_found_by_the_name_of_its_table_also_if_it_has_dots_itself(shop: Shop) -> None:
    shop.post(derived("mart", "mart.orders", {"amount": ["raw.orders.cents"], "buyer.name": ["raw.orders.who"]}))
    assert resolve(shop.store, "mart.orders.amount").name == "mart.orders.amount"
    assert resolve(shop.store, "orders.AMOUNT").kind == "column"
    assert resolve(shop.store, "orders.buyer.name").name == "mart.orders.buyer.name"
    with pytest.raises(NameNotFound):
        resolve(shop.store, "mart.orders.amount", columns=False)
    with pytest.raises(NameNotFound):
        resolve(shop.store, "mart.orders.missing")


def test_columns_are_followed_through_tables_that_depend_on_them_as_a_whole(shop: Shop) -> None:
    shop.post(
        derived(
            "stage",
            "staging.orders",
            {"amount": ["raw.orders.cents"], "day": ["raw.orders.at"]},
            whole=["raw.shops.open"],
        ),
        derived("mart", "mart.sales", {"total": ["staging.orders.amount"]}),
    )
    assert tree(shop.up("mart.sales.total")) == [
        "mart.sales.total  [mysql://shop]",
        "└── staging.orders.amount",
        "    ├── raw.orders.cents",
        "    └── raw.shops.open  by indirect filter whole table",
    ]
    assert tree(shop.down("raw.shops.open")) == [
        "raw.shops.open  [mysql://shop]",
        "└── staging.orders  by indirect filter whole table",
        "    └── mart.sales.total",
    ]


def test_cycles_end_and_are_shown_and_nothing_is_expanded_twice(shop: Shop) -> None:
    shop.post(
        ran("a_to_b", ["a"], ["b"]),
        ran("b_to_a", ["b"], ["a"]),
        ran("merge", ["b", "d"], ["b"]),
        ran("fan", ["b"], ["c"]),
        ran("meet", ["b", "c"], ["e"]),
    )
    assert tree(shop.up("e")) == [
        "e  [mysql://shop]",
        "├── b  by etl/meet",
        "│   ├── a  by etl/a_to_b",
        "│   │   └── b  by etl/b_to_a  (cycle: it is above)",
        "│   ├── b  by etl/merge  (cycle: it is above)",
        "│   └── d  by etl/merge",
        "└── c  by etl/meet",
        "    └── b  by etl/fan  (shown above)",
    ]
    assert len(tree(shop.down("a", depth=100))) < 12


def test_the_depth_bounds_the_answer_and_says_where_there_is_more(shop: Shop) -> None:
    shop.post(*(ran(f"job{n}", [f"t{n}"], [f"t{n + 1}"]) for n in range(6)))
    assert tree(shop.down("t0", depth=2)) == [
        "t0  [mysql://shop]",
        "└── t1  by etl/job0",
        "    └── t2  by etl/job1",
        "        └── … (more with a greater --depth)",
    ]
    assert not shop.down("t0", depth=6).more
    few = shop.down("t0", depth=6, limit=3)
    assert few.truncated
    assert [asset.name for asset in few.assets.values()] == ["t0", "t1", "t2"]


def test_what_was_dropped_or_no_longer_holds_is_not_shown(shop: Shop) -> None:
    shop.post(ran("mart", ["raw.old", "raw.orders"], ["mart.sales"]), ran("other", ["raw.gone"], ["mart.sales"]))
    dropped = dataset(SHOP, "raw.gone", lifecycleStateChange={"lifecycleStateChange": "DROP"})
    shop.post({**ran("ddl", [], []), "outputs": [dropped]}, ran("mart", ["raw.orders"], ["mart.sales"]))
    assert [asset.name for asset in shop.up("mart.sales").assets.values()] == ["mart.sales", "raw.orders"]
    assert [asset.name for asset in search(shop.store, "raw.", limit=9)] == ["raw.old", "raw.orders"]
    with pytest.raises(NameNotFound):
        resolve(shop.store, "raw.gone")


def test_search_finds_parts_of_names_literally_and_columns_by_their_own_name(shop: Shop) -> None:
    shop.post(derived("mart", "mart.orders", {"order_id": ["raw.orders.id"], "100%": ["raw.orders.%"]}))
    shop.post(ran("words", [], ["mart.Größe", "mart.ÜBERSICHT"]))

    def names(text: str, limit: int = 50) -> Names:
        return [asset.name for asset in search(shop.store, text, limit=limit)]

    assert names("ORDERS") == ["mart.orders", "raw.orders"]
    assert names("order") == ["mart.orders", "raw.orders", "mart.orders.order_id"]
    assert names("orders.i") == ["raw.orders.id"]
    assert names("%") == ["mart.orders.100%", "raw.orders.%"]
    assert names("order_") == ["mart.orders.order_id"]
    assert names("größe") == ["mart.Größe"]
    assert names("ÜBER") == ["mart.ÜBERSICHT"]
    assert names("order", limit=1) == ["mart.orders"]
    assert names("nowhere") == []


def test_the_number_of_queries_grows_neither_with_the_width_nor_with_the_size(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.post(
        ran("wide", [f"in{n}" for n in range(120)], ["middle"]),
        *(ran(f"reader{n}", ["middle"], [f"out{n}"]) for n in range(60)),
        derived("columns", "middle", {f"c{n}": [f"in{n}.x"] for n in range(60)}),
    )
    with counted(monkeypatch) as sent:
        assert len(shop.down("in7", depth=2).assets) == 62
    # resolving: tables, perhaps columns; then per level two steps of at most two statements; then all names
    assert 0 < len(sent) <= 3 + 2 * (2 + 1) * 2 + 1
    with counted(monkeypatch) as sent:
        assert len(shop.up("middle.c7", depth=3).assets) == 2
    assert 0 < len(sent) <= 4 + 2 * 2 * (3 + 1) + 1
    with counted(monkeypatch) as sent:
        search(shop.store, "in", limit=1000)
    assert len(sent) == 2
    with counted(monkeypatch) as sent:
        runs_of(shop.engine, shop.store, resolve(shop.store, "middle"), limit=20)
    assert 0 < len(sent) <= 3 + 6 * runs_module.MAX_PAGES


def test_runs_are_those_that_read_or_wrote_the_table_with_their_state(shop: Shop) -> None:
    first, second, third = (str(uuid.uuid4()) for _ in range(3))
    shop.post(
        ran("stage", ["raw.orders"], ["staging.orders"], run=first, kind="START"),
        ran("stage", [], [], run=first),
        ran("mart", ["staging.orders"], ["mart.sales"], run=second, kind="START"),
        ran("mart", ["staging.orders"], ["mart.sales"], run=second, kind="FAIL"),
        ran("stage", ["raw.orders"], ["staging.orders"], run=third, kind="START"),
        ran("stage", ["raw.orders"], ["staging.elsewhere"], kind="START"),
    )
    found = runs_of(shop.engine, shop.store, resolve(shop.store, "staging.orders"), limit=20)
    shown = [(run.run_id, run.job, run.state, run.wrote, run.read, run.ended is not None) for run in found.runs]
    assert shown == [
        (third, "etl/stage", "START", True, False, False),
        (second, "etl/mart", "FAIL", False, True, True),
        (first, "etl/stage", "COMPLETE", True, False, True),
    ]
    assert found.complete
    assert found.runs[2].began < (found.runs[2].ended or START)
    newest = runs_of(shop.engine, shop.store, resolve(shop.store, "staging.orders"), limit=1)
    assert [run.run_id for run in newest.runs] == [third]


def test_many_events_are_read_page_by_page_and_the_bound_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "EVENTS_A_PAGE", 4)
    monkeypatch.setattr(runs_module, "MAX_PAGES", 3)
    shop.post(*(ran("stage", ["raw.orders"], ["staging.orders"]) for _ in range(15)))
    table = resolve(shop.store, "staging.orders")
    found = runs_of(shop.engine, shop.store, table, limit=5)
    assert (len(found.runs), found.complete) == (5, True)
    found = runs_of(shop.engine, shop.store, table, limit=20)
    assert (len(found.runs), found.complete) == (12, False)


def test_a_long_run_is_listed_with_its_beginning_whether_or_not_its_end_names_the_table(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "EVENTS_A_PAGE", 4)
    named, silent = str(uuid.uuid4()), str(uuid.uuid4())
    shop.post(
        ran("stage", ["raw.orders"], ["staging.orders"], run=named, kind="START"),
        ran("stage", ["raw.orders"], ["staging.orders"], run=silent, kind="START"),
        *(ran("stage", ["raw.orders"], ["staging.orders"]) for _ in range(20)),
        ran("stage", [], [], run=silent),
        ran("stage", [], ["staging.orders"], run=named),
    )
    table = resolve(shop.store, "staging.orders")
    with counted(monkeypatch) as sent:
        found = runs_of(shop.engine, shop.store, table, limit=2)
    assert found.complete
    assert [(run.run_id, run.state, run.wrote) for run in found.runs] == [
        (named, "COMPLETE", True),
        (silent, "COMPLETE", True),
    ]
    first, last = (START + timedelta(minutes=1), START + timedelta(minutes=24))
    assert [(run.began, run.ended) for run in found.runs] == [
        (first, last),
        (first + timedelta(minutes=1), last - timedelta(minutes=1)),
    ]
    # the jobs and their names, the page, which events say more of its runs, their sizes, these, and what names mean
    assert 0 < len(sent) <= 6 + 6


def test_no_more_large_events_of_runs_are_in_memory_at_a_time_than_fit(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of a page's runs were read at once: 400 of them, which may have 6 MiB each."""
    shop.post(*(ran("stage", ["raw.orders"], ["staging.orders"]) for _ in range(7)))
    fetched = count_fetched(monkeypatch, runs_module)
    monkeypatch.setattr(stored_rows, "EVENTS_AT_ONCE", 3)
    assert len(runs_of(shop.engine, shop.store, resolve(shop.store, "staging.orders"), limit=20).runs) == 7
    assert fetched == [3, 3, 1]


def test_runs_that_overlap_are_listed_by_their_newest_events(shop: Shop) -> None:
    long, short, whole = str(uuid.uuid4()), str(uuid.uuid4()), str(uuid.uuid4())
    shop.post(
        ran("stage", [], ["staging.orders"], run=long, kind="START"),
        ran("stage", [], ["staging.orders"], run=short, kind="START"),
        ran("stage", [], ["staging.orders"], run=whole),
        ran("stage", [], ["staging.orders"], run=short, kind="FAIL"),
        ran("stage", [], ["staging.orders"], run=long),
    )
    found = runs_of(shop.engine, shop.store, resolve(shop.store, "staging.orders"), limit=20)
    assert [(run.run_id, run.state) for run in found.runs] == [(long, "COMPLETE"), (short, "FAIL"), (whole, "COMPLETE")]


def test_a_run_with_more_events_than_are_read_is_told_from_one_that_is_known(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "EVENTS_A_PAGE", 4)
    monkeypatch.setattr(runs_module, "PAGES_OF_RUNS", 2)
    chatty = str(uuid.uuid4())
    shop.post(
        ran("stage", [], ["staging.orders"]),
        ran("stage", [], [], run=chatty, kind="START"),
        *(ran("stage", [], [], run=chatty, kind="RUNNING") for _ in range(20)),
        ran("stage", [], ["staging.orders"], run=chatty),
    )
    table = resolve(shop.store, "staging.orders")
    found = runs_of(shop.engine, shop.store, table, limit=1)
    # what is between its first and its last events may say that it also read the table
    assert [(run.run_id, run.state, run.read) for run in found.runs] == [(chatty, "COMPLETE", False)]
    assert found.runs[0].began == START + timedelta(minutes=2)
    assert not found.complete


def test_the_answer_says_so_if_more_jobs_touch_the_table_than_are_looked_at(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.post(*(ran(f"stage{n}", [], ["staging.orders"]) for n in range(3)))
    table = resolve(shop.store, "staging.orders")
    assert runs_of(shop.engine, shop.store, table, limit=20).complete
    monkeypatch.setattr(runs_module, "MAX_JOBS", 2)
    found = runs_of(shop.engine, shop.store, table, limit=20)
    assert (found.jobs, len(found.runs), found.complete) == (2, 2, False)

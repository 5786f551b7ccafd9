"""What users saw to be false: each sequence of real-looking events ends in the same true graph on every store."""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import Graph
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events, prune_graph
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS
from tests.lineage.test_merge_stores import START, new_tenant, open_graphs
from tests.lineage.wire import at_catalog, dataset, gravitino, run_event, schema

__all__ = ["open_graphs"]
DUCK = "duckdb://shop"


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph]) -> Graph:
    return open_graphs(str(request.param))


class Lineage:
    """A tenant's graph, to which events come one after the other."""

    def __init__(self, graph: Graph, tenant: Tenant) -> None:
        self.store = graph.for_tenant(tenant.id)
        self.tenant = tenant
        self._minute = 0

    def post(self, raw: dict[str, Any], source: SourceType = SourceType.COMPUTE) -> None:
        self._minute += 1
        event = parse_event({**raw, "eventTime": (START + timedelta(minutes=self._minute)).isoformat()})
        facts = EventFacts(version_of(event.event_time, event.payload_hash), facts_of(event, source).facts)
        assert not apply_events(self.store, self.tenant, [facts]).needs_rebuild

    def edges(self, *types: str) -> set[str]:
        """from>to by qualified name; an SQL node is named by its job."""
        items = list(self.store.stream())
        names = {
            node.id: node.props.get("qualifiedName") or node.props.get("jobName", "")
            for node in items
            if isinstance(node, Node)
        }
        found = [edge for edge in items if isinstance(edge, Edge) and edge.type in types]
        return {f"{names[edge.from_id]}>{names[edge.to_id]}" for edge in found}

    def described(self) -> dict[str, str]:
        nodes = [item for item in self.store.stream() if isinstance(item, Node) and "description" in item.props]
        return {node.props["qualifiedName"]: node.props["description"] for node in nodes}

    @property
    def types(self) -> dict[str, str]:
        nodes = [item for item in self.store.stream() if isinstance(item, Node) and "dataType" in item.props]
        return {node.props["qualifiedName"]: node.props["dataType"] for node in nodes}

    @property
    def columns(self) -> set[str]:
        return {edge.partition(">")[2] for edge in self.edges("HAS_COLUMN")}


@pytest.fixture
def lineage(graph: Graph) -> Iterator[Lineage]:
    made = Lineage(graph, new_tenant())
    yield made
    made.store.clear()


def ran(job: str, reads: list[dict[str, Any]], writes: list[dict[str, Any]], sql: str | None = None) -> dict[str, Any]:
    facets = {} if sql is None else {"sql": {"query": sql}}
    named = {"namespace": "dbt", "name": job, "facets": facets}
    return run_event(run={"runId": str(uuid.uuid4())}, job=named, inputs=reads, outputs=writes)


def column_lineage(**pairs: str) -> dict[str, Any]:
    fields = {
        out: {"inputFields": [{"namespace": DUCK, "name": "main.raw", "field": source}]}
        for out, source in pairs.items()
    }
    return {"fields": fields}


RAW = dataset(DUCK, "main.raw", schema=schema("id"))


def test_a_run_whose_schema_lists_only_documented_columns_keeps_the_other_ones(lineage: Lineage) -> None:
    documented = schema("id", "status")
    pairs = column_lineage(id="id", status="state", amount="cents", day="at")
    model = dataset(DUCK, "main.orders", schema=documented, columnLineage=pairs)
    for _ in range(2):
        lineage.post(ran("orders", [RAW], [model]))
    before = lineage.edges("DERIVES_FROM")
    assert len(before) == 4
    # a test of the model, and a run by structured logs, name fewer columns or none
    lineage.post(ran("test.orders", [dataset(DUCK, "main.orders", schema=documented)], []))
    lineage.post(ran("orders", [RAW], [dataset(DUCK, "main.orders")]))
    assert lineage.edges("DERIVES_FROM") == before
    assert {"main.orders.amount", "main.orders.day"} <= lineage.columns


def untyped(*names: str) -> dict[str, Any]:
    return {"fields": [{"name": name, "type": None} for name in names]}


def test_a_job_that_no_longer_knows_a_type_does_not_erase_it(lineage: Lineage) -> None:
    def run(written: dict[str, Any], read: dict[str, Any], **facets: Any) -> None:
        source, target = dataset(DUCK, "main.raw", schema=read), dataset(DUCK, "main.b", schema=written, **facets)
        lineage.post(ran("job", [source], [target]))

    run(schema(("x", "int"), ("y", "text")), schema(("s", "date")))
    known = {"main.b.x": "int", "main.b.y": "text", "main.raw.s": "date"}
    run(untyped("x", "y"), untyped("s"))
    assert lineage.types == known
    # a schema with names alone, and none beside column lineage
    run({"fields": [{"name": "x"}, {"name": "y"}]}, {"fields": [{"name": "s"}]})
    run({}, {}, columnLineage=column_lineage(x="s", y="s"))
    assert lineage.types == known
    run(schema(("x", "bigint")), schema(("s", "timestamp")))
    run(untyped("x", "y"), untyped("s"))
    assert lineage.types == {"main.b.x": "bigint", "main.b.y": "text", "main.raw.s": "timestamp"}


def test_what_one_event_says_of_a_column_twice_keeps_the_type_that_it_gives_once(lineage: Lineage) -> None:
    def b(fields: dict[str, Any], name: str = "main.b", **facets: Any) -> dict[str, Any]:
        return dataset(DUCK, name, schema=fields, **facets)

    known = {"main.b.x": "int"}
    # the table is read and written
    lineage.post(ran("job", [b(schema(("x", "int")))], [b(untyped("x"))]))
    assert lineage.types == known
    lineage.post(gone(b({})))
    lineage.post(ran("job", [b(schema(("x", "int")))], [b({}, columnLineage=column_lineage(x="s"))]))
    assert lineage.types == known
    lineage.post(gone(b({})))
    # its schema lists the column twice
    lineage.post(ran("job", [], [b({"fields": [*schema(("x", "int"))["fields"], *untyped("x")["fields"]]})]))
    assert lineage.types == known
    lineage.post(gone(b({})))
    # it is among the outputs by its path and by its name
    path = {"identifiers": [{"namespace": DUCK, "name": "main.b", "type": "TABLE"}]}
    lineage.post(ran("job", [], [b(schema(("x", "int")), "/data/b", symlinks=path), b(untyped("x"))]))
    assert lineage.types == known
    # what counts is what is written, if that says something else, and an empty type says nothing
    lineage.post(ran("job", [b(schema(("x", "int")))], [b(schema(("x", "bigint")))]))
    lineage.post(ran("job", [], [b(schema(("x", "")))]))
    assert lineage.types == {"main.b.x": "bigint"}


def gone(table: dict[str, Any]) -> dict[str, Any]:
    facets = {**table["facets"], "lifecycleStateChange": {"lifecycleStateChange": "DROP"}}
    return ran("ddl", [], [{**table, "facets": facets}])


def test_a_type_ends_with_its_column(lineage: Lineage) -> None:
    def run(columns: dict[str, Any], **facets: Any) -> None:
        lineage.post(ran("job", [RAW], [dataset(DUCK, "main.b", schema=columns, **facets)]))

    run(schema(("x", "int")))
    run(untyped("x"))
    run(untyped("x"), lifecycleStateChange={"lifecycleStateChange": "DROP"})
    run(untyped("x"))
    assert "main.b.x" in lineage.columns
    assert "main.b.x" not in lineage.types


def test_old_types_of_columns_that_are_gone_are_forgotten_after_a_while(lineage: Lineage) -> None:
    lineage.post(ran("job", [RAW], [dataset(DUCK, "main.b", schema=schema("x", ("y", "text")))]))
    lineage.post(ran("job", [RAW], [dataset(DUCK, "main.b", schema=schema("x"))]))
    assert not any(name == "main.b.y" for name in lineage.columns)
    prune_graph(lineage.store, START + timedelta(days=1))
    lineage.post(ran("job", [RAW], [dataset(DUCK, "main.b", schema=untyped("x", "y"))]))
    assert "main.b.y" in lineage.columns
    assert lineage.types == {"main.raw.id": "int", "main.b.x": "int"}


def test_a_column_keeps_its_last_type_as_long_as_drops_are_remembered_after_it_went_however_old_the_type_is(
    lineage: Lineage,
) -> None:
    """And not only so long after somebody has said the type: then the graph would differ from its own rebuild."""

    def run(job: str, columns: dict[str, Any], **facets: Any) -> None:
        lineage.post(ran(job, [RAW], [dataset(DUCK, "main.b", schema=columns, **facets)]))

    run("job", schema("x", ("y", "text")))
    run("other", untyped("y"))
    run("job", untyped("x", "y"))
    run("other", untyped("z"))
    types = {"main.raw.id": "int", "main.b.x": "int", "main.b.y": "text"}
    assert lineage.types == types
    run("job", untyped("x"))  # the fifth minute: now the column is gone
    assert "main.b.y" not in lineage.columns
    prune_graph(lineage.store, START + timedelta(minutes=4.5))
    run("job", untyped("x", "y"))
    assert lineage.types == types
    run("job", untyped("x"))  # the seventh
    prune_graph(lineage.store, START + timedelta(minutes=6.5))
    run("job", untyped("x", "y"))
    assert lineage.types == types
    run("job", untyped("x"))
    prune_graph(lineage.store, START + timedelta(days=1))
    run("job", untyped("x", "y"))
    assert lineage.types == {"main.raw.id": "int", "main.b.x": "int"}


def test_the_same_text_of_two_jobs_ties_no_tables_of_the_two_together(lineage: Lineage) -> None:
    text = "insert into b select * from a"
    for env in ("prod", "test"):
        lineage.post(ran(f"{env}.job", [dataset(DUCK, f"{env}.a")], [dataset(DUCK, f"{env}.b")], text))
    assert lineage.edges("INPUT_OF", "OUTPUT_TO") == {
        "prod.a>prod.job",
        "prod.job>prod.b",
        "test.a>test.job",
        "test.job>test.b",
    }


def test_lineage_follows_the_current_run_and_tables_stay(lineage: Lineage) -> None:
    old = dataset(DUCK, "main.b", columnLineage=column_lineage(x="x"))
    lineage.post(ran("job", [RAW, dataset(DUCK, "main.gone")], [old]))
    lineage.post(ran("job", [RAW], [dataset(DUCK, "main.b", columnLineage=column_lineage(x="y"))]))
    assert lineage.edges("INPUT_OF", "OUTPUT_TO") == {"main.raw>job", "job>main.b"}
    assert lineage.edges("DERIVES_FROM") == {"main.b.x>main.raw.y"}
    assert any(name.endswith("main.gone") for name in lineage.edges("HAS_TABLE"))


def test_a_wide_facet_with_inputs_of_the_whole_dataset_is_one_edge_for_each_input(lineage: Lineage) -> None:
    names = [f"c{number}" for number in range(60)]
    whole = [{"namespace": DUCK, "name": "main.raw", "field": f"f{number}"} for number in range(20)]
    wide = dataset(
        DUCK, "main.wide", columnLineage={**column_lineage(**{name: name for name in names}), "dataset": whole}
    )
    lineage.post(ran("job", [RAW], [wide]))
    assert len(lineage.edges("DERIVES_FROM")) == len(names) + len(whole)
    assert "main.wide>main.raw.f0" in lineage.edges("DERIVES_FROM")


def test_a_catalogs_set_of_columns_removes_what_jobs_said_before_it(lineage: Lineage) -> None:
    table = at_catalog("sales.orders", schema=schema("id", "extra"))
    lineage.post(ran("job", [RAW], [table]))
    catalog = gravitino("create_table", at_catalog("sales.orders", schema=schema("id")))
    lineage.post(catalog, SourceType.GRAVITINO)
    assert lineage.columns >= {"hive.sales.orders.id"}
    assert "hive.sales.orders.extra" not in lineage.columns
    lineage.post(ran("job", [RAW], [table]))
    assert "hive.sales.orders.extra" in lineage.columns


def test_qualified_names_follow_a_rename_and_a_drop_by_an_engine_drops(lineage: Lineage) -> None:
    def change(kind: str, name: str, **facet: Any) -> dict[str, Any]:
        facet = {"lifecycleStateChange": kind, **facet}
        return ran("ddl", [], [dataset(DUCK, name, lifecycleStateChange=facet)])

    lineage.post(ran("job", [RAW], [dataset(DUCK, "main.old", schema=schema("x"))]))
    lineage.post(change("RENAME", "main.new", previousIdentifier={"namespace": DUCK, "name": "main.old"}))
    assert "main.new.x" in lineage.columns
    lineage.post(change("TRUNCATE", "main.new"))
    assert "main.new.x" in lineage.columns
    lineage.post(change("DROP", "main.new"))
    assert not any("main.new" in name for name in lineage.columns | lineage.edges("HAS_TABLE"))


def test_drops_and_renames_of_an_engine_act_when_they_are_complete_and_after_all_else_that_the_event_says(
    lineage: Lineage,
) -> None:
    def change(kind: str, name: str, event_type: str, **facets: Any) -> dict[str, Any]:
        before = {"previousIdentifier": {"namespace": DUCK, "name": "main.old"}} if kind == "RENAME" else {}
        facets["lifecycleStateChange"] = {"lifecycleStateChange": kind, **before}
        return ran("ddl", [RAW], [dataset(DUCK, name, **facets)]) | {"eventType": event_type}

    def known(name: str) -> set[str]:
        """The table and its columns."""
        found = {edge.partition(">")[2] for edge in lineage.edges("HAS_TABLE", "HAS_COLUMN")}
        return {one for one in found if one == name or one.startswith(f"{name}.")}

    old = dataset(DUCK, "main.old", schema=schema("x"), columnLineage=column_lineage(x="id"))
    lineage.post(ran("job", [RAW], [old]))
    for event_type in ("START", "RUNNING", "OTHER", "FAIL", "ABORT"):
        lineage.post(change("DROP", "main.old", event_type))
        lineage.post(change("RENAME", "main.tried", event_type))
        assert known("main.old") == {"main.old", "main.old.x"}
    said = {"schema": schema("x", "y"), "columnLineage": column_lineage(y="id")}
    lineage.post(change("RENAME", "main.new", "COMPLETE", **said))
    assert known("main.old") == set()
    assert known("main.new") == {"main.new", "main.new.x", "main.new.y"}
    assert lineage.edges("DERIVES_FROM") == {"main.new.x>main.raw.id", "main.new.y>main.raw.id"}
    lineage.post(change("DROP", "main.new", "COMPLETE", **said))
    assert known("main.new") == set()
    assert lineage.edges("DERIVES_FROM") == set()
    lineage.post(ran("job", [RAW], [dataset(DUCK, "main.new", schema=schema("y"))]))
    assert known("main.new") == {"main.new", "main.new.y"}


def test_a_description_without_text_hides_none_that_somebody_gave(lineage: Lineage) -> None:
    """dbt sends such ones for columns that nobody has documented, Flink for tables."""

    def orders(of_table: str, of_column: str) -> dict[str, Any]:
        fields = [{"name": "id", "description": of_column}, {"name": "day", "description": " "}]
        return dataset(DUCK, "main.orders", schema={"fields": fields}, documentation={"description": of_table})

    lineage.post(ran("report", [orders("All orders.", "Its number.")], []))
    lineage.post(ran("orders", [RAW], [orders("", "")]))
    assert lineage.described() == {"main.orders": "All orders.", "main.orders.id": "Its number."}

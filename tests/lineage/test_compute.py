"""Events of compute engines: logical tables, the SQL node between them, and column lineage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import Dataset, parse_event
from platform_defs.lineage.extract.compute.names import symlink_of, table_of_name
from platform_defs.lineage.extract.facts_of import Extraction, facts_of
from platform_defs.lineage.facts import (
    SPEAKER,
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    LinkSet,
    Ref,
    Renamed,
    Statement,
)
from tests.lineage.wire import at_catalog, dataset, facet, gravitino, run_event, schema

PG = "postgres://db:5432"


def extracted(raw: dict[str, Any]) -> Extraction:
    return facts_of(parse_event(raw), SourceType.COMPUTE)


def table(*names: str) -> Ref:
    return Ref("table", names)


def statement(found: Extraction) -> Statement:
    (said,) = [fact for fact in found.facts if isinstance(fact, Statement)]
    return said


def columns(given: tuple[Exists, ...]) -> dict[str, dict[str, Any]]:
    """table.column -> properties."""
    return {".".join(column.ref.name[-2:]): dict(column.props) for column in given}


def links(found: Extraction, kind: str) -> list[tuple[Ref, Ref]]:
    return [(link.source, link.target) for link in statement(found).links if link.type == kind]


def derived(found: Extraction) -> dict[tuple[str, str], dict[str, Any]]:
    """(output column, input column) -> properties of the edge. A column is given as (table, column)."""
    return {
        (".".join(link.source.name[-2:]), ".".join(link.target.name[-2:])): dict(link.props)
        for link in statement(found).links
        if link.type == "DERIVES_FROM"
    }


def existing(found: Extraction, ref: Ref) -> dict[str, Any] | None:
    return next((dict(fact.props) for fact in found.facts if isinstance(fact, Exists) and fact.ref == ref), None)


# logical tables


@pytest.mark.parametrize(
    ("namespace", "name", "names"),
    [
        (PG, "shop.public.orders", (PG, "shop", "public", "orders")),
        (PG, "shop.public.orders.2024", (PG, "shop", "public", "orders.2024")),
        (f"{PG}/shop", "public.orders", (PG, "shop", "public", "orders")),
        (f"{PG}/shop", "shop.public.orders", (PG, "shop", "public", "orders")),
        (f"{PG}/shop", "orders", (PG, "shop", "./", "orders")),
        (PG, "public.orders", (PG, PG, "public", "orders")),
        (PG, "orders", (PG, PG, "./", "orders")),
        ("lake", "hive.sales.orders", ("lake", "hive", "sales", "orders")),
        ("bigquery", "project.dataset.t", ("bigquery", "project", "dataset", "t")),
        ("file", "/data/in/a.csv", ("file", "file", "/data/in/", "a.csv")),
        ("file", "/data/in/", ("file", "file", "/data/", "in")),
        ("file", "a.csv", ("file", "file", "./", "a.csv")),
        ("s3://bucket", "dir/a.b.parquet", ("s3://bucket", "s3://bucket", "dir/", "a.b.parquet")),
        ("hdfs://h:9820", "/wh/db/t", ("hdfs://h:9820", "hdfs://h:9820", "/wh/db/", "t")),
        ("kafka://k:9092", "a..b", ("kafka://k:9092", "kafka://k:9092", "./", "a..b")),
        ("gravitino://lake/hive", "sales.orders", ("lake", "hive", "sales", "orders")),
        ("gravitino://tenant/7/lake/hive", "sales.orders.v1", ("lake", "hive", "sales", "orders.v1")),
        ("gravitino://lake", "hive.sales.orders", ("lake", "hive", "sales", "orders")),
        ("file:/wh", "default.t2", ("file:/wh", "file:/wh", "default", "t2")),
        ("file:///wh", "default.t2", ("file:///wh", "file:///wh", "default", "t2")),
        ("file:///wh/", "default.t2", ("file:///wh/", "file:///wh/", "default", "t2")),
        ("hdfs:///wh", "default.t2", ("hdfs:///wh", "hdfs:///wh", "default", "t2")),
        ("s3://bucket/wh", "default.t2", ("s3://bucket/wh", "s3://bucket/wh", "default", "t2")),
        ("file:///", "a.csv", ("file:///", "file:///", "./", "a.csv")),
        ("file:///wh", "a", ("file:///wh", "file:///wh", "./", "a")),
        ("s3://bucket/", "a.csv", ("s3://bucket/", "s3://bucket/", "./", "a.csv")),
        ("hdfs://h/user/wh", "default.t2", ("hdfs://h/user/wh", "hdfs://h/user/wh", "default", "t2")),
        ("arn:aws:glue:eu:1", "table/db/t", ("arn:aws:glue:eu:1", "arn:aws:glue:eu:1", "db", "t")),
    ],
)
def test_a_dataset_is_a_logical_table_by_its_own_names(namespace: str, name: str, names: tuple[str, ...]) -> None:
    assert logical_table(Dataset(namespace, name, {}), "prod") == table(*names)


def logical_table(dataset: Dataset, job_namespace: str | None) -> Ref:
    return symlink_of(dataset, job_namespace) or table_of_name(dataset.namespace, dataset.name)


def symlinks(namespace: str | None, name: str, kind: str = "TABLE") -> dict[str, Any]:
    location = {"namespace": "x", "name": "dir", "type": "LOCATION"}
    return {"identifiers": [location, {"namespace": namespace, "name": name, "type": kind}]}


@pytest.mark.parametrize(
    ("link", "job_namespace", "names"),
    [
        (symlinks("hive://h:9083", "sales.orders"), "prod", ("hive://h:9083", "hive://h:9083", "sales", "orders")),
        (symlinks("gravitino://tenant/7/lake/hive", "sales.orders"), "prod", ("lake", "hive", "sales", "orders")),
        (symlinks("hive://h", "hive.sales.orders"), "gravitino://tenant/7/lake", ("lake", "hive", "sales", "orders")),
        (symlinks("hive://h", "sales.orders"), "gravitino://lake/hive", ("lake", "hive", "sales", "orders")),
        (symlinks("hive://h", "sales.orders"), "gravitino://lake", ("hive://h", "hive://h", "sales", "orders")),
        (symlinks(None, "a.b.c"), "prod", ("s3://b", "a", "b", "c")),
        (symlinks("file:/wh", "default.t2"), "prod", ("file:/wh", "file:/wh", "default", "t2")),
        (symlinks("hive://h", "a.b", "VIEW"), "prod", ("s3://b", "s3://b", "wh/", "orders")),
        (symlinks("hive://h", "a.b") | {"_deleted": True}, "prod", ("s3://b", "s3://b", "wh/", "orders")),
    ],
)
def test_a_symlink_to_a_table_is_that_table(link: dict[str, Any], job_namespace: str, names: tuple[str, ...]) -> None:
    assert logical_table(Dataset("s3://b", "wh/orders", {"symlinks": link}), job_namespace) == table(*names)


names = st.text("ab./", min_size=1, max_size=6)


@given(st.sets(st.tuples(st.sampled_from(["ns", "pg://h", "file", "s3://b"]), names), min_size=2, max_size=12))
def test_two_datasets_never_become_one_table(datasets: set[tuple[str, str]]) -> None:
    different = {(namespace, name.rstrip("/") or name) for namespace, name in datasets}
    # `./a` and `a` are the same file, and `//` consists of slashes only
    different = {(ns, name) for ns, name in different if not name.startswith("./") and name.strip("/")}
    assert len({logical_table(Dataset(*names, {}), None) for names in different}) == len(different)


# tables and the SQL node


def test_tables_are_tied_to_the_text_that_ran() -> None:
    raw = run_event(inputs=[dataset(PG, "d.s.a")], outputs=[dataset(PG, "d.s.b")])
    raw["job"]["facets"] = {"sql": {"query": "  insert into b select 1  ", "dialect": "Postgres"}}
    raw["run"]["facets"] = {"processing_engine": {"name": "Airflow"}}
    found = extracted(raw)
    assert found.sql is not None
    assert links(found, "INPUT_OF") == [(table(PG, "d", "s", "a"), found.sql)]
    assert links(found, "OUTPUT_TO") == [(found.sql, table(PG, "d", "s", "b"))]
    assert existing(found, found.sql) == {
        "content": "insert into b select 1",
        "dialect": "postgres",
        "engine": "airflow",
        "jobNamespace": "prod",
        "jobName": "daily",
    }
    assert existing(found, Ref("schema", (PG, "d", "s"))) == {"name": "s"}
    assert existing(found, Ref("catalog", (PG, "d"))) == {"name": "d", "metalake": PG}


def with_sql(query: str, job: str = "daily", **sql: Any) -> dict[str, Any]:
    return run_event(job={"namespace": "prod", "name": job, "facets": {"sql": {"query": query, **sql}}})


def test_one_text_of_one_job_is_one_node_and_another_jobs_is_not() -> None:
    node = extracted(with_sql("select 1")).sql
    assert node is not None
    assert extracted(with_sql("\n select\t 1 ; ")).sql == node
    assert extracted(with_sql("select 1", dialect="spark")).sql == node
    assert extracted(with_sql("select 1", job="other")).sql != node
    assert extracted(with_sql("select 2")).sql != node


def test_a_job_without_text_has_a_node_of_its_own_so_that_table_lineage_is_not_lost() -> None:
    raw = run_event(inputs=[dataset(PG, "d.s.a")])
    found = extracted(raw)
    assert found.sql is not None
    assert existing(found, found.sql) == {"jobNamespace": "prod", "jobName": "daily"}
    assert links(found, "INPUT_OF") == [(table(PG, "d", "s", "a"), found.sql)]
    assert extracted(raw | {"eventType": "START", "inputs": [], "outputs": raw["inputs"]}).sql == found.sql
    assert extracted(raw | {"job": {"namespace": "prod", "name": "other"}}).sql != found.sql


def test_an_event_without_tables_and_text_says_nothing() -> None:
    assert statement(extracted(run_event(eventType="COMPLETE"))) == Statement(
        Ref(SPEAKER, ("job", "prod", "daily")), run_event()["run"]["runId"], completes=True, names_dataset=False
    )
    assert extracted(run_event(eventType="START")) == Extraction(())
    assert extracted(with_sql("  ")).sql is None
    assert extracted(with_sql("select 1", _deleted=True)).sql is None


def test_text_without_tables_is_a_node_alone() -> None:
    found = extracted(with_sql("select 1"))
    assert [fact.ref for fact in found.facts if isinstance(fact, Exists)] == [found.sql]


def test_a_dataset_event_describes_its_table_and_ran_nothing() -> None:
    about = dataset(PG, "d.s.a", schema=schema("id"), documentation={"description": "all"})
    found = extracted({"eventTime": "2024-05-01", "dataset": about})
    assert found.sql is None
    assert existing(found, table(PG, "d", "s", "a")) == {"name": "a", "description": "all"}
    assert columns(statement(found).written) == {"a.id": {"name": "id", "dataType": "int"}}
    assert statement(found).completes


@pytest.mark.parametrize(
    ("job_facets", "run_facets", "dialect"),
    [
        ({"sql": {"query": "q", "dialect": "Trino"}}, {"processing_engine": {"name": "spark"}}, "trino"),
        ({"sql": {"query": "q"}}, {"processing_engine": {"name": "spark"}}, "spark"),
        ({"sql": {"query": "q"}, "jobType": {"integration": "FLINK"}}, {}, "flink"),
        ({"sql": {"query": "q"}, "jobType": {"integration": "SPARK"}}, {"processing_engine": {"name": "x"}}, "spark"),
        ({"sql": {"query": "q"}, "jobType": {"integration": "DBT"}}, {}, None),
    ],
)
def test_the_dialect_is_told_by_the_facets(job_facets: Any, run_facets: Any, dialect: str | None) -> None:
    raw = with_sql("q") | {"run": {"runId": "r", "facets": run_facets}}
    raw["job"]["facets"] = job_facets
    found = extracted(raw)
    assert found.sql is not None
    assert (existing(found, found.sql) or {}).get("dialect") == dialect


# schemas and deleted facets


def test_columns_are_written_or_read_and_no_job_says_all_of_them() -> None:
    raw = run_event(
        inputs=[dataset(PG, "d.s.a", schema=schema("x"))], outputs=[dataset(PG, "d.s.b", schema=schema("y"))]
    )
    found = extracted(raw)
    assert not any(isinstance(fact, ColumnSet) for fact in found.facts)
    assert columns(statement(found).read) == {"a.x": {"name": "x", "dataType": "int"}}
    assert columns(statement(found).written) == {"b.y": {"name": "y", "dataType": "int"}}


def test_fields_inside_of_fields_are_columns_and_a_null_type_erases_none() -> None:
    inner = {"name": "zip", "type": None, "fields": [{"name": "code", "type": "text"}]}
    fields = [{"name": "address", "type": "struct", "fields": [inner]}]
    found = extracted(run_event(outputs=[dataset(PG, "d.s.b", schema={"fields": fields})]))
    assert columns(statement(found).written) == {
        "b.address": {"name": "address", "dataType": "struct"},
        "b.address.zip": {"name": "address.zip"},
        "b.address.zip.code": {"name": "address.zip.code", "dataType": "text"},
    }


@pytest.mark.parametrize("change", ["DROP", "RENAME", "TRUNCATE"])
def test_a_change_of_lifecycle_acts_after_all_else_of_a_complete_event(change: str) -> None:
    facet = {"lifecycleStateChange": change, "previousIdentifier": {"namespace": PG, "name": "d.s.old"}}
    raw = run_event(outputs=[dataset(PG, "d.s.b", lifecycleStateChange=facet)])
    b = table(PG, "d", "s", "b")
    expected = {"DROP": Dropped(b), "RENAME": Renamed(table(PG, "d", "s", "old"), b), "TRUNCATE": None}[change]
    last = extracted(raw).facts[-1]
    assert last == expected or (expected is None and isinstance(last, Statement))
    for kind in ("START", "FAIL"):
        assert isinstance(extracted(raw | {"eventType": kind}).facts[-1], Statement)


@pytest.mark.parametrize("fields", [None, "odd", [], [None, {}, {"name": ""}, {"name": 5}]])
def test_a_schema_that_says_no_column_removes_none(fields: object) -> None:
    found = extracted(run_event(outputs=[dataset(PG, "d.s.b", schema={"fields": fields})]))
    assert not any(isinstance(fact, ColumnSet) for fact in found.facts)


def test_deleted_facets_remove_what_they_described() -> None:
    gone = {"_deleted": True}
    about = dataset(PG, "d.s.b", schema=gone, documentation=gone)
    found = extracted(run_event(outputs=[about]))
    b = table(PG, "d", "s", "b")
    assert ColumnSet(b, ()) in found.facts
    assert (existing(found, b) or {})["description"] is None
    lineage = dataset(PG, "d.s.b", schema=schema("y"), columnLineage=gone | {"fields": {"z": {}}})
    cut = [fact for fact in extracted(run_event(outputs=[lineage])).facts if isinstance(fact, LinkSet)]
    assert {(fact.source.name[-1], fact.types, fact.links) for fact in cut} == {
        ("y", frozenset({"DERIVES_FROM"}), ()),
        ("z", frozenset({"DERIVES_FROM"}), ()),
    }


@pytest.mark.parametrize("content", [{}, {"fields": {}}, {"fields": None}])
def test_a_deleted_column_lineage_without_its_content_is_all_that_the_table_had(content: dict[str, Any]) -> None:
    about = dataset(PG, "d.s.b", schema=schema("y"), columnLineage={"_deleted": True} | content)
    for raw in (run_event(outputs=[about]), {"eventTime": "2024-05-01", "dataset": about}):
        cut = [fact for fact in extracted(raw).facts if isinstance(fact, ColumnsUnlinked | LinkSet)]
        assert cut == [ColumnsUnlinked(table(PG, "d", "s", "b"), frozenset({"DERIVES_FROM"}))]


# column lineage


def field(name: str, column: str, *transformations: tuple[str, str]) -> dict[str, Any]:
    said = [{"type": kind, "subtype": sub, "masking": False} for kind, sub in transformations]
    return {"namespace": PG, "name": name, "field": column} | ({"transformations": said} if said else {})


def lineage_event(column_lineage: dict[str, Any], **facets: Any) -> dict[str, Any]:
    out = dataset(PG, "d.s.b", columnLineage=column_lineage, **facets)
    return run_event(inputs=[dataset(PG, "d.s.a")], outputs=[out])


def test_columns_derive_from_the_columns_that_the_facet_names() -> None:
    fields = {"y": {"inputFields": [field("d.s.a", "x", ("DIRECT", "IDENTITY")), field("d.s.c", "z")]}}
    found = extracted(lineage_event({"fields": fields}))
    assert derived(found) == {
        ("b.y", "a.x"): {"transformationType": "DIRECT", "transformationSubtype": "IDENTITY", "masking": False},
        ("b.y", "c.z"): {},
    }
    assert set(columns(statement(found).read)) == {"a.x", "c.z"}
    assert existing(found, table(PG, "d", "s", "c")) == {"name": "c"}


def test_inputs_of_the_whole_dataset_are_inputs_of_the_table() -> None:
    names = ("y", "z")
    fields = {name: {"inputFields": [field("d.s.a", "x", ("DIRECT", "IDENTITY"))]} for name in names}
    rows = [field("d.s.a", "x", ("INDIRECT", "FILTER")), field("d.s.a", "w", ("INDIRECT", "JOIN"))]
    found = extracted(lineage_event({"fields": fields, "dataset": rows}, schema=schema("p")))
    assert len(links(found, "DERIVES_FROM")) == len(names) + len(rows)
    whole = [link for link in statement(found).links if link.type == "DERIVES_FROM" and link.source.kind == "table"]
    assert {link.target.name[-1]: link.props["transformationSubtype"] for link in whole} == {"x": "FILTER", "w": "JOIN"}


def test_the_old_form_says_the_transformation_once_for_the_field() -> None:
    content = {"inputFields": [field("d.s.a", "x")], "transformationType": "MASKED", "transformationDescription": "sha"}
    found = derived(extracted(lineage_event({"fields": {"y": content}})))
    assert found == {("b.y", "a.x"): {"transformationType": "MASKED", "transformationDescription": "sha"}}


def test_columns_of_a_file_are_columns_of_the_table_that_stands_for_it() -> None:
    source = dataset("hdfs://h", "/wh/a", symlinks=symlinks("hive://h", "s.a"))
    fields = {"y": {"inputFields": [{"namespace": "hdfs://h", "name": "/wh/a", "field": "x"}]}}
    raw = run_event(inputs=[source], outputs=[dataset(PG, "d.s.b", columnLineage={"fields": fields})])
    targets = [target.name for _, target in links(extracted(raw), "DERIVES_FROM")]
    assert targets == [("hive://h", "hive://h", "s", "a", "x")]


@pytest.mark.parametrize(
    "odd",
    [
        {"fields": []},
        {"fields": {"y": None, "": {"inputFields": []}}},
        {"fields": {"y": {"inputFields": [None, {}, {"namespace": PG, "name": "a", "field": None}]}}},
        {"fields": {"y": {"inputFields": [field("d.s.a", "x") | {"transformations": "odd"}]}}},
        {"dataset": {"x": 1}},
    ],
)
def test_odd_column_lineage_keeps_the_table_lineage(odd: dict[str, Any]) -> None:
    found = extracted(lineage_event(odd))
    assert links(found, "INPUT_OF")
    assert links(found, "OUTPUT_TO")


# column lineage out of SQL


def sql_event(query: str, **out: Any) -> dict[str, Any]:
    raw = run_event(inputs=[dataset(PG, "d.s.a", schema=schema("Id", "n"))], outputs=[dataset(PG, "d.s.b", **out)])
    raw["job"]["facets"] = {"sql": {"query": query}}
    return raw


def test_sql_fills_in_where_the_event_has_no_column_lineage() -> None:
    found = derived(extracted(sql_event("insert into s.b (k, total) select id, sum(n) from s.a group by id")))
    assert {pair: props["transformationSubtype"] for pair, props in found.items()} == {
        ("b.k", "a.Id"): "IDENTITY",
        ("b.total", "a.n"): "AGGREGATION",
    }


def test_insert_without_a_list_fills_by_position() -> None:
    found = derived(extracted(sql_event("insert into b select id, n from a", schema=schema("k", "m"))))
    assert set(found) == {("b.k", "a.Id"), ("b.m", "a.n")}


def test_a_source_column_that_the_inputs_partial_schema_lacks_is_kept() -> None:
    found = derived(extracted(sql_event("create table b as select id, sum(amount) as total from a group by id")))
    assert set(found) == {("b.id", "a.Id"), ("b.total", "a.amount")}


def test_words_that_are_no_columns_of_the_table_are_left_out() -> None:
    found = derived(extracted(sql_event("create table b as select datediff(minute, id, n) as m from a")))
    assert ("b.m", "a.minute") not in found


def test_the_events_own_column_lineage_is_believed_over_its_sql() -> None:
    own = {"fields": {"y": {"inputFields": [field("d.s.a", "n")]}}}
    found = derived(extracted(sql_event("create table b as select id as y from a", columnLineage=own)))
    assert set(found) == {("b.y", "a.n")}
    deleted = sql_event("create table b as select id as y from a", columnLineage={"_deleted": True})
    assert derived(extracted(deleted)) == {}


@pytest.mark.parametrize("query", ["select (", "\x00", "insert into b select * from unknown", "x" * 100_000])
def test_text_that_is_not_understood_keeps_the_table_lineage(query: str) -> None:
    found = extracted(sql_event(query))
    assert links(found, "INPUT_OF")
    assert links(found, "OUTPUT_TO")
    assert derived(found) == {}


# events that look like Gravitino's


def test_a_compute_event_that_looks_like_gravitinos_does_not_touch_the_catalog_by_operation() -> None:
    found = extracted(gravitino("drop_table", at_catalog("sales.orders", gravitino=facet(description="evil"))))
    assert not any(isinstance(fact, Dropped) for fact in found.facts)
    assert found.operation is None
    orders = existing(found, table("lake", "hive", "sales", "orders"))
    assert orders == {"name": "orders", "producer": "https://gravitino.apache.org/listener"}

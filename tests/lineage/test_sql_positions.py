"""Which column of the target an output of the query fills: the one in its place, or the one of its name."""

import pytest

from tests.lineage.test_sql_targets import Tables, derived, edges_of
from tests.lineage.wire import dataset, run_event, schema

READ: Tables = {"s": ("id", "x", "y")}


@pytest.mark.parametrize(
    ("sql", "edges"),
    [
        ("insert into t select x as b, y as a from s", {"t.a<-s.x", "t.b<-s.y"}),
        ("insert into t select max(x), min(y) from s", {"t.a<-s.x", "t.b<-s.y"}),
        ("insert into t select x as same, y as same from s", {"t.a<-s.x", "t.b<-s.y"}),
        ("insert into t select 1, y from s", {"t.b<-s.y"}),
        ("insert into t with c as (select x as b, y as a from s) select * from c", {"t.a<-s.x", "t.b<-s.y"}),
        (
            "insert into t select x, y from s union all select id as b, x as a from s",
            {"t.a<-s.x", "t.a<-s.id", "t.b<-s.y", "t.b<-s.x"},
        ),
        # the statement lists the target's columns
        ("insert into t (b, a) select x, y from s", {"t.b<-s.x", "t.a<-s.y"}),
        # of another number of columns nobody can tell which ones are filled
        ("insert into t select id, x, y from s", set()),
        ("insert into t select x as a from s", set()),
        ("insert into t select * from s", set()),
        ("insert into t select x as a, * from unknown", set()),
    ],
)
def test_an_insert_without_a_list_fills_the_known_columns_in_their_order(sql: str, edges: set[str]) -> None:
    assert derived(sql, READ, {"t": ("a", "b")}) == edges


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("create table t as select x as b, y as a from s", "postgres"),
        ("create view t as select x as b, y as a from s", "postgres"),
        ("select x as b, y as a from s", "postgres"),
        ("select x as b, y as a into t from s", "tsql"),
        ("insert into t by name select x as b, y as a from s", "spark"),
        ("insert into t by name select x as b, y as a from s", "duckdb"),
        ("insert overwrite directory '/t' select x as b, y as a from s", "spark"),
    ],
)
def test_others_fill_the_columns_that_have_the_names_of_the_query(sql: str, dialect: str) -> None:
    assert derived(sql, READ, {"t": ("a", "b")}, dialect) == {"t.b<-s.x", "t.a<-s.y"}


def test_a_name_that_a_partial_schema_of_a_made_table_lacks_is_no_other_column() -> None:
    assert derived("create table t as select x as b, y as c from s", READ, {"t": ("a", "b")}) == {
        "t.b<-s.x",
        "t.c<-s.y",
    }
    assert derived("select x as k from s", READ, {"t": ("a",)}) == {"t.k<-s.x"}


def test_an_insert_into_a_table_without_known_columns_fills_those_that_have_the_names_of_the_query() -> None:
    assert derived("insert into t select x as b, max(y), id from s", READ, {"t": ()}) == {"t.b<-s.x", "t.id<-s.id"}


@pytest.mark.parametrize(
    ("sql", "edges"),
    [
        ("insert overwrite table t partition (d = '1') select x, y from s", {"t.a<-s.x", "t.b<-s.y"}),
        ("insert overwrite table t partition (d) select x, y, id from s", {"t.a<-s.x", "t.b<-s.y", "t.d<-s.id"}),
        ("insert into t partition (d = '1') (b, a) select x, y from s", {"t.b<-s.x", "t.a<-s.y"}),
        ("insert overwrite table t partition (d = '1') select x, y, id from s", set()),
    ],
)
def test_the_columns_of_a_partition_clause_have_a_value_or_come_last(sql: str, edges: set[str]) -> None:
    assert derived(sql, READ, {"t": ("a", "d", "b")}, "spark") == edges


def test_a_list_of_all_columns_but_some_is_not_mapped() -> None:
    assert derived("insert into t (* except (a)) select x from s", READ, {"t": ("a", "b")}, "clickhouse") == set()
    nested = derived("insert into t (n.k, b) select x, y from s", READ, {"t": ("n", "b")}, "clickhouse")
    assert nested == {"t.n.k<-s.x", "t.b<-s.y"}


def test_columns_inside_of_a_column_come_along_with_it_and_shift_no_position() -> None:
    address = {"name": "address", "type": "struct", "fields": [{"name": "zip", "type": "text"}]}
    wide = {"fields": [address, {"name": "id", "type": "int"}]}

    def edges(sql: str, columns: dict[str, object]) -> set[tuple[str, str]]:
        read = dataset("pg://h", "d.s.a", schema=wide)
        raw = run_event(inputs=[read], outputs=[dataset("pg://h", "d.s.t", **columns)])
        raw["job"]["facets"] = {"sql": {"query": sql}}
        return {(source.name[-1], target.name[-1]) for source, target in edges_of(raw)}

    copied = {("address", "address"), ("address.zip", "address.zip"), ("id", "id")}
    assert edges("create table t as select * from a", {}) == copied
    assert edges("insert into t select * from a", {"schema": wide}) == copied
    assert edges("insert into t (p, q) select * from a", {}) == {
        ("p", "address"),
        ("p.zip", "address.zip"),
        ("q", "id"),
    }
    assert edges("insert into t (p) select * from a", {}) == set()
    # the target's struct has other fields, or none
    assert edges("insert into t select address, id from a", {"schema": schema("p", "q")}) == {
        ("p", "address"),
        ("q", "id"),
    }
    assert edges("create table t as select upper(address) as p from a", {}) == {("p", "address")}

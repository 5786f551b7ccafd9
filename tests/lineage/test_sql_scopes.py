"""Whose a column is: an edge if the statement qualifies it or only one table in scope can have it, else none."""

import pytest

from platform_defs.lineage.extract.compute.sql_columns import Schemas
from tests.lineage.test_sql import KNOWN, read

NOTHING: dict[str, set[str]] = {}


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        # q may have `amount`, from b or from c
        ("select amount from s.a join (select b1.*, c1.* from s.b b1 join s.c c1 on true) q on true", NOTHING),
        ("select amount from s.a join (select b1.* from s.b b1) q on true", NOTHING),
        ("with c as (select * from s.b), d as (select * from c, s.e) select amount from s.a, d", NOTHING),
        # q has no such column
        ("select amount from s.a join (select b1.id from s.b b1) q on true", {"amount": {"s.a.amount:I"}}),
        ("select amount from s.a join (select max(y) from s.b) q on true", {"amount": {"s.a.amount:I"}}),
    ],
)
def test_a_subquery_that_may_have_a_column_makes_it_ambiguous_also_if_nobody_knows_whose_it_is_there(
    sql: str, lineage: dict[str, set[str]]
) -> None:
    assert read(sql, schemas=KNOWN) == lineage


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("select zz from s.a join unnest(array[1]) u on true", "postgres"),
        ("select zz from s.a cross join unnest(arr) as u(zz)", "trino"),
        ("select zz from s.a, unnest(arr) with ordinality as u(k)", "postgres"),
        ("select item, amount from s.a, unnest(arr) as item", "bigquery"),
        ("select col from s.a lateral view explode(arr) e", "spark"),
        ("select zz from s.a lateral view explode(arr) e as zz", "spark"),
        ("select value from s.a, lateral flatten(input => arr) f", "snowflake"),
        ("select zz from s.a, table(f(1)) q", "snowflake"),
        ("select zz from s.a, f(1) q", "postgres"),
        ("select q.zz from s.a, f(1) q", "postgres"),
        ("select zz from s.a cross apply openjson(a.j) with (zz int) q", "tsql"),
        ("select p from s.a, (values (1, 2)) v (p, q)", "postgres"),
        ("select column1 from s.a, (values (1, 2)) v", "postgres"),
        ("with c as (values (1, 2)) select column1 from s.a, c", "postgres"),
        ("select zz from s.a cross join lateral (select * from s.b, s.c) q", "postgres"),
        ("select z from s.a array join arr as z", "clickhouse"),
        ("select level from s.a connect by prior id = pid", "oracle"),
        ("select m from s.a match_recognize (measures last(z) as m pattern (A) define A as z > 1)", "snowflake"),
        ("select p from s.a pivot(sum(v) for k in ('p', 'q')) as pv", "snowflake"),
        ("select k, v from s.a unpivot(v for k in (c1, c2))", "snowflake"),
        ("with d as (delete from s.b returning *) select zz from d, s.a", "postgres"),
    ],
)
def test_what_is_no_table_may_have_the_column(sql: str, dialect: str) -> None:
    assert read(sql, dialect) == NOTHING


@pytest.mark.parametrize(
    ("sql", "dialect", "lineage"),
    [
        ("select x from s.a cross join unnest(arr) as u(zz)", "trino", {"x": {"s.a.x:I"}}),
        ("select x from s.a lateral view explode(arr) e as zz", "spark", {"x": {"s.a.x:I"}}),
        ("select x from s.a, lateral flatten(input => arr) f", "snowflake", {"x": {"s.a.x:I"}}),
        ("select x from s.a, (values (1, 2)) v (p, q)", "postgres", {"x": {"s.a.x:I"}}),
        ("with c (k) as (values (1)) select x from s.a, c", "postgres", {"x": {"s.a.x:I"}}),
        ("select X from s.a, unnest(arr) as item", "bigquery", {"X": {"s.a.X:I"}}),
        ("select id from s.a pivot(sum(v) for k in ('p', 'q')) as pv", "snowflake", {"id": {"s.a.id:I"}}),
        (
            "select k, x from s.a cross join lateral (select y as k from s.b where b.id = a.id) q",
            "postgres",
            {"k": {"s.b.y:I"}, "x": {"s.a.x:I"}},
        ),
        ("select x from s.a cross apply (select y from s.b) q", "tsql", {"x": {"s.a.x:I"}}),
        ("select x from s.a left semi join s.b on a.id = b.id", "spark", {"x": {"s.a.x:I"}}),
        ("select x from s.a for update of a", "postgres", {"x": {"s.a.x:I"}}),
    ],
)
def test_beside_something_with_a_list_of_columns_or_that_a_schema_lists_it_is_the_tables(
    sql: str, dialect: str, lineage: dict[str, set[str]]
) -> None:
    assert read(sql, dialect, KNOWN if dialect in ("bigquery", "snowflake") else ()) == lineage


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        ("insert into t (a) select *, x from s.a union all select *, x from s.b", NOTHING),
        ("insert into t (a, b) select id, x from s.a union all select *, y from s.b", {"a": "id", "b": "x"}),
        ("with c as (select *, x as k from s.a union all select *, y from s.b) select k from c", {"k": "x"}),
        # the names are those of the first query, so `z` can only be a column of a
        ("with c as (select * from s.a union all select * from s.b) select z from c", {"z": "z"}),
        ("with c as (select * from s.b union all select * from s.a) select z from c, s.a", NOTHING),
        (
            "with c as (select id as z from s.a union all select * from s.c) select z, x from c, s.a",
            {"z": "id", "x": "x"},
        ),
        ("select id, x from s.a except select y, z from s.b", {"id": "id", "x": "x"}),
    ],
)
def test_a_star_in_a_set_operation_neither_shifts_positions_nor_hides_that_there_are_more_columns(
    sql: str, lineage: dict[str, str]
) -> None:
    assert read(sql) == {name: {f"s.a.{column}:I"} for name, column in lineage.items()}


def test_columns_before_a_star_and_columns_of_one_name_are_paired_in_a_set_operation() -> None:
    first = "select id, 'a' as src, * from s.a union all select y, 'b', * from s.b"
    assert read(first) == {"id": {"s.a.id:I", "s.b.y:I"}}
    stars = "select * from s.a union all select * from s.b"
    # dbt lists only documented columns: a star of as many known columns need not stand for the same ones
    assert read(stars, schemas=KNOWN) == {"id": {"s.a.id:I", "s.b.id:I"}, "X": {"s.a.X:I"}}
    by_name = "select id, x from s.a union all by name select x, id from s.b"
    assert read(by_name, "duckdb") == {"id": {"s.a.id:I", "s.b.id:I"}, "x": {"s.a.x:I", "s.b.x:I"}}


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        ("select id from s.a join s.b using (id)", {"id": {"s.a.id:I", "s.b.id:I"}}),
        ("select id from s.a join (select id, y from s.b) q using (id)", {"id": {"s.a.id:I", "s.b.id:I"}}),
        ("select id from s.a, s.b join s.c using (id)", {"id": {"s.c.id:I"}}),
        ("select x from s.a join s.b using (id)", NOTHING),
        # a merged column is one column
        ("insert into t (k, l, m, n) select * from s.a join s.b using (id)", NOTHING),
        ("insert into t (k, l, m, n) select * from s.a natural join s.b", NOTHING),
        (
            "create table t as select * from s.a join s.b using (id)",
            {"id": {"s.a.id:I", "s.b.id:I"}, "X": {"s.a.X:I"}, "y": {"s.b.y:I"}},
        ),
        (
            "create table t as select * from s.a natural join s.b",
            {"id": {"s.a.id:I", "s.b.id:I"}, "X": {"s.a.X:I"}, "y": {"s.b.y:I"}},
        ),
    ],
)
def test_a_column_that_joins_merge_derives_from_all_tables_that_have_it(sql: str, lineage: dict[str, set[str]]) -> None:
    assert read(sql, schemas=KNOWN if "*" in sql else ()) == lineage


def test_a_column_that_two_tables_list_is_nobodys_if_no_join_merges_it() -> None:
    assert read("select id from s.a, s.b", schemas=KNOWN) == {}


@pytest.mark.parametrize(
    ("sql", "dialect", "lineage"),
    [
        ("select * except (id) from s.a", "bigquery", {"X": {"s.a.X:I"}}),
        ("select a.* exclude (id) from s.a join s.b", "snowflake", {"X": {"s.a.X:I"}}),
        ("select * replace (x + 1 as id) from s.a", "duckdb", {"id": {"s.a.x:T"}, "x": {"s.a.x:I"}}),
        ("select * rename (id as k) from s.a", "snowflake", {"k": {"s.a.id:I"}, "X": {"s.a.X:I"}}),
        ("select q.amount from (select * except (amount) from s.a) q", "bigquery", NOTHING),
        ("select amount from s.a, (select * except (amount) from s.b) q", "bigquery", {"amount": {"s.a.amount:I"}}),
        ("select q.k, q.y from (select * rename (y as k) from s.c) q", "snowflake", {"k": {"s.c.y:I"}}),
        ("select * ilike '%d%' from s.a", "snowflake", NOTHING),
        ("select a.* from db.a, s.a", "mysql", NOTHING),
        ("select s.a.* from db.a, s.a", "mysql", {"id": {"s.a.id:I"}, "X": {"s.a.X:I"}}),
        ("select struct(a.*) as k from s.a", "bigquery", NOTHING),
        ("select (select * from s.b limit 1) as m from s.a", "postgres", {"m": {"s.b.id:T", "s.b.y:T"}}),
        ("insert into t (k, l, m) select columns(*), id, x from s.a", "duckdb", NOTHING),
        ("insert into t (k, l, m) select id, st.*, x from s.a", "bigquery", NOTHING),
    ],
)
def test_a_star_stands_for_what_it_says(sql: str, dialect: str, lineage: dict[str, set[str]]) -> None:
    assert read(sql, dialect, KNOWN) == lineage


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        ("with c (id, m) as (select x, id from s.a) select id from c", {"id": {"s.a.x:I"}}),
        ("select k, m from (select id, x from s.a) q (k, m)", {"k": {"s.a.id:I"}, "m": {"s.a.x:I"}}),
        ("select q.id from (select id, x from s.a) q (k, m)", NOTHING),
        ("select id from (select id, x from s.c) q (k, m), s.a", {"id": {"s.a.id:I"}}),
        ("with c (k) as (select * from s.c) select k, z from c", NOTHING),
        ("select k from s.c as q (k, m)", NOTHING),
        ("select k from s.a as q (k, m)", {"k": {"s.a.id:I"}}),
        (
            "with recursive r (n) as (select id from s.a union all select n + 1 from r) select n from r",
            {"n": {"s.a.id:T"}},
        ),
        ("with recursive r as (select * from s.c union all select z from r, s.d) select id from s.a, r", NOTHING),
    ],
)
def test_an_alias_with_a_list_of_columns_renames_them(sql: str, lineage: dict[str, set[str]]) -> None:
    assert read(sql, schemas=KNOWN if " q " in sql else ()) == lineage


def test_a_recursive_query_may_have_all_columns_of_its_first_part() -> None:
    tree = "with recursive r as (select * from s.a union all select {} from r join s.b on true) select n from r"
    assert read(tree.format("n")) == {"n": {"s.a.n:I"}}
    step = "with recursive r as (select id as n from s.a union all select {} from r join s.b on true) select n from r"
    assert read(step.format("n")) == {"n": {"s.a.id:I"}}
    assert read(step.format("m")) == {"n": {"s.a.id:I", "s.b.m:I"}}
    open_step = step.replace("id as n", "id as n, *")
    assert read(open_step.format("m")) == {"n": {"s.a.id:I"}}


@pytest.mark.parametrize(
    ("sql", "schemas", "lineage"),
    [
        # b may lack `X`, which a has: then it is a's
        ("select (select X from s.b where b.id = a.id) as m from s.a", KNOWN, NOTHING),
        ("select (select y from s.b where b.id = a.id) as m from s.a", KNOWN, {"m": {"s.b.y:T"}}),
        ("select (select max(x) from (select y from s.b) q) as m from s.a", (), {"m": {"s.a.x:A"}}),
        ("select (select x) as m from s.a", (), {"m": {"s.a.x:T"}}),
        ("select (select x) as m from s.a, s.b", (), NOTHING),
        # what the FROM reads is not what is around it
        ("select m from (select (select X from s.b) as m from s.c) q, s.a", KNOWN, {"m": {"s.b.X:T"}}),
        ("with b as (select 1 as z) select (select b.y from s.c limit 1) as m from s.b b", (), {"m": {"s.b.y:T"}}),
    ],
)
def test_a_column_of_a_correlated_subquery_may_be_of_the_query_around_it(
    sql: str, schemas: Schemas, lineage: dict[str, set[str]]
) -> None:
    assert read(sql, schemas=schemas) == lineage


def test_a_name_that_means_two_tables_lists_the_columns_of_neither() -> None:
    two: Schemas = ((("d", "users"), ("id", "z")), (("e", "users"), ("id", "w")))
    assert read("select z from users, s.a", schemas=two) == {}
    assert read("select * from users", schemas=two) == {}
    assert read("select z from d.users, s.a", schemas=two) == {"z": {"d.users.z:I"}}


def test_many_columns_of_many_tables_are_given_up() -> None:
    columns, tables = (", ".join(f"{letter}{number}" for number in range(600)) for letter in "ct")
    assert read(" ".join(["select", columns, "from", tables])) == {}

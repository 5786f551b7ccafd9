"""Which statement of a SQL text fills which output of the event, and what flows through tables that the text makes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import Linked, Ref, Statement
from tests.lineage.wire import dataset, run_event, schema

HOST = "postgres://db:5432"
Tables = Mapping[str, Sequence[str]]


def derived(sql: str, inputs: Tables, outputs: Tables, dialect: str | None = None) -> set[str]:
    """The edges `output.column<-input.column` of an event with this text; tables without columns have no schema."""

    def named(tables: Tables) -> list[dict[str, Any]]:
        return [
            dataset(HOST, f"d.s.{name}", **({"schema": schema(*columns)} if columns else {}))
            for name, columns in tables.items()
        ]

    raw = run_event(inputs=named(inputs), outputs=named(outputs))
    raw["job"]["facets"] = {"sql": {"query": sql, **({"dialect": dialect} if dialect else {})}}
    return {f"{'.'.join(source.name[3:])}<-{'.'.join(target.name[3:])}" for source, target in edges_of(raw)}


def edges_of(raw: dict[str, Any]) -> list[tuple[Ref, Ref]]:
    """The output columns of the event, each with an input column that it derives from."""
    return [(link.source, link.target) for link in links_of(raw)]


def links_of(raw: dict[str, Any]) -> list[Linked]:
    said = [fact for fact in facts_of(parse_event(raw), SourceType.COMPUTE).facts if isinstance(fact, Statement)]
    return [link for statement in said for link in statement.links if link.type == "DERIVES_FROM"]


READ: Tables = {"a": (), "b": ()}


@pytest.mark.parametrize(
    ("sql", "edges"),
    [
        ("create temp table tmp as select id as k from s.b; insert into s.t select x from s.a", {"t.x<-a.x"}),
        ("create table s.log as select id as k from s.b; insert into s.t select x from s.a", {"t.x<-a.x"}),
        ("insert into log (k) select id from b; insert into t (x) select x from a", {"t.x<-a.x"}),
        ("create temp table t as select id as k from s.b; insert into s.t select x from s.a", {"t.x<-a.x"}),
        (
            "create temp table t (k int); insert into t select id from b; insert into s.t select x from a",
            {"t.x<-a.x"},
        ),
        ("select count(id) as n from b; insert into t select x from a", {"t.x<-a.x"}),
        ("create temp table tmp as select id as k from b; insert into t values (1)", set()),
        ("create temp table tmp as select id as k from b; delete from t where k in (select k from tmp)", set()),
        ("create temp table tmp as select id as k from b; update t set k = 1", set()),
        (
            "create temp table tmp as select id as k from b;"
            " merge into t using tmp on t.k = tmp.k when matched then update set k = 1",
            set(),
        ),
        ("select id into temp tmp from b; insert into t select x from a", {"t.x<-a.x"}),
    ],
)
def test_a_statement_that_names_another_table_does_not_fill_the_output(sql: str, edges: set[str]) -> None:
    assert derived(sql, READ, {"t": ()}) == edges


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("insert all into t (k) values (x) into u (k) values (x) select x from a", "snowflake"),
        ("from a insert into t select x insert into u select x", "hive"),
        ("load data inpath '/x' into table t", "hive"),
        ("copy into t from @stage", "snowflake"),
    ],
)
def test_a_statement_that_is_not_followed_names_its_tables_all_the_same(sql: str, dialect: str) -> None:
    made = "create temporary table tmp as select id as k from b"
    assert derived(f"{made}; {sql}", READ, {"t": ()}, dialect) == set()
    assert derived(made, READ, {"t": ()}, dialect) == {"t.k<-b.id"}


def test_replace_into_names_its_table() -> None:
    sql = "create temporary table tmp as select id as k from b; replace into t (x) select x from a"
    assert derived(sql, READ, {"t": ()}, "mysql") == {"t.x<-a.x"}


@pytest.mark.parametrize(
    ("sql", "edges"),
    [
        ("select x from a", {"t.x<-a.x"}),
        ("set role etl; select x from a", {"t.x<-a.x"}),
        ("create table t__dbt_tmp as select x from a", {"t.x<-a.x"}),
        ("create temp table t__dbt_tmp as select x from a", {"t.x<-a.x"}),
        ("create table t__dbt_tmp as select x from a; alter table t__dbt_tmp rename to t", {"t.x<-a.x"}),
        ("drop table if exists t_new; create table t_new as select x from a; drop table t", {"t.x<-a.x"}),
        ("delete from other; insert into other select x from a", {"t.x<-a.x"}),
        # a query that names no target is what the client fetched
        ("create temp table tmp as select id as k from b; select k, x from tmp, a", {"t.k<-b.id", "t.x<-a.x"}),
        ("create temp table tmp as select id as k from b; insert into other select k from tmp", {"t.k<-b.id"}),
        ("select pg_advisory_lock(1); create table t__dbt_tmp as select x from a", {"t.x<-a.x"}),
        ("delete from audit; insert into log values (1); create table t_new as select x from a", {"t.x<-a.x"}),
        # one of them is the output by another name, and nobody can tell which
        ("create table one as select id as k from b; create table two as select x from a", set()),
        ("create temp table one as select id as k from b; create temp table two as select x from a", set()),
        ("create temp table tmp as select id as k from b; update other set k = 1", set()),
    ],
)
def test_an_output_that_no_statement_names_is_what_the_text_writes_under_another_name(
    sql: str, edges: set[str]
) -> None:
    assert derived(sql, READ, {"t": ()}) == edges


def test_of_several_outputs_each_is_filled_by_the_statements_that_name_it() -> None:
    both = "insert into t select x from a; insert into u select id from b"
    assert derived(both, READ, {"t": (), "u": ()}) == {"t.x<-a.x", "u.id<-b.id"}
    assert derived("insert into v select x from a; select id from b", READ, {"t": (), "u": ()}) == set()
    made = "create temp table tmp as select id as k from b; insert into t select k from tmp"
    assert derived(made, READ, {"tmp": (), "t": ()}) == {"tmp.k<-b.id", "t.k<-b.id"}


@pytest.mark.parametrize(
    ("sql", "edges"),
    [
        ("create temp table tmp as select id as k from b; insert into t select k from tmp", {"t.k<-b.id"}),
        (
            "create temp table tmp as select id as k, y from b; insert into t select * from tmp",
            {"t.k<-b.id", "t.y<-b.y"},
        ),
        ("create temp table tmp (m) as select id from b; insert into t select m from tmp", {"t.m<-b.id"}),
        ("create temp table tmp as select * from b; insert into t select y from tmp", {"t.y<-b.y"}),
        ("create table s.stage as select id as k from b; insert into t select max(k) as k from s.stage", {"t.k<-b.id"}),
        ("select id as k into temp tmp from b; insert into t select k from tmp", {"t.k<-b.id"}),
        ("create view v as select id as k from b; insert into t select k from v", {"t.k<-b.id"}),
        (
            "create temp table one as select id as k from b; create temp table two as select k + 1 as m from one;"
            " insert into t select m from two",
            {"t.m<-b.id"},
        ),
        # a temporary table hides the one that the event reads
        ("create temp table a as select id as x from b; insert into t select x from a", {"t.x<-b.id"}),
        ("create temp table a (x int); insert into t select x from a", set()),
        ("create temp table tmp as select id as k from b; insert into t select x from a, tmp", {"t.x<-a.x"}),
        ("insert into t select k from tmp; create temp table tmp as select id as k from b", set()),
    ],
)
def test_what_is_read_from_a_table_that_the_text_has_made_derives_from_what_filled_that(
    sql: str, edges: set[str]
) -> None:
    assert derived(sql, READ, {"t": ()}) == edges


def test_what_is_read_from_an_input_that_the_text_has_made_derives_from_that_input() -> None:
    sql = "create table m as select id as k from b; insert into t select k from m"
    assert derived(sql, {"b": (), "m": ()}, {"m": (), "t": ()}) == {"m.k<-b.id", "t.k<-m.k"}


def test_the_body_of_a_function_fills_nothing() -> None:
    sql = "create function f(x int64) as ((select max(y) as y from b)); insert into other select x from a"
    assert derived(sql, READ, {"t": ()}, "bigquery") == {"t.x<-a.x"}


def test_columns_that_mysql_defines_beside_a_query_are_matched_by_name() -> None:
    sql = "create table t (m int, id int) as select id, x from a"
    assert derived(sql, READ, {"t": ()}, "mysql") == {"t.id<-a.id", "t.x<-a.x"}
    assert derived(sql, READ, {"t": ()}, "snowflake") == {"t.m<-a.id", "t.id<-a.x"}

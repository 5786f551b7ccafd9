"""Column lineage from SQL text, through subqueries, CTEs, unions, joins and stars."""

import logging

import pytest

from platform_defs.lineage.extract.compute.sql import MAX_NESTING, MAX_SQL_LENGTH, statements_of
from platform_defs.lineage.extract.compute.sql_columns import Schemas, same_table

KNOWN: Schemas = ((("s", "a"), ("id", "X")), (("s", "b"), ("id", "y")))


def read(sql: str, dialect: str = "postgres", schemas: Schemas = ()) -> dict[str, set[str]]:
    """Output column -> its sources, each as table.column:subtype."""
    return {
        output.column: {f"{'.'.join(source.table)}.{source.column}:{source.subtype[0]}" for source in output.sources}
        for statement in statements_of(sql, dialect, schemas)
        for output in statement.outputs
    }


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        ("select id from s.a", {"id": {"s.a.id:I"}}),
        ("select t.id as k, t.x + 1 as z from s.a t", {"k": {"s.a.id:I"}, "z": {"s.a.x:T"}}),
        ("select count(x) as n from s.a", {"n": {"s.a.x:A"}}),
        ("create table t as select id from s.a", {"id": {"s.a.id:I"}}),
        ("create view t (k) as select id from s.a", {"k": {"s.a.id:I"}}),
        ("insert into t (k, v) select id, x from s.a", {"k": {"s.a.id:I"}, "v": {"s.a.x:I"}}),
        ("with c as (select id as k from s.a) insert into t select k from c", {"k": {"s.a.id:I"}}),
        ("insert into t with c as (select sum(id) as k from s.a) select k from c", {"k": {"s.a.id:A"}}),
        ("select q.k from (select x * 2 as k from s.a) q", {"k": {"s.a.x:T"}}),
        ("select id from s.a union all select y from s.b", {"id": {"s.a.id:I", "s.b.y:I"}}),
        ("select a.id, b.y from s.a join s.b on a.id = b.id", {"id": {"s.a.id:I"}, "y": {"s.b.y:I"}}),
        ("select (select max(y) from s.b) as m from s.a", {"m": {"s.b.y:A"}}),
        ("select (select b.y from s.b where b.id = t.id) as m from s.a t", {"m": {"s.b.y:T"}}),
        ("with c as (select * from s.a) select id from c", {"id": {"s.a.id:I"}}),
        (
            "with recursive r as (select id from s.a union all select r.id from r) select id from r",
            {"id": {"s.a.id:I"}},
        ),
        ("select x + 1 as z, z * 2 as w from s.a", {"z": {"s.a.x:T"}, "w": {"s.a.x:T"}}),
        ("select case when x > 0 then id end as k from s.a", {"k": {"s.a.x:T", "s.a.id:T"}}),
        ("select 1 as one from s.a", {}),
        ("delete from s.a", {}),
        ("", {}),
        ("-- nothing", {}),
    ],
)
def test_columns_are_followed_to_their_tables(sql: str, lineage: dict[str, set[str]]) -> None:
    assert read(sql) == lineage


def test_stars_over_stars_end() -> None:
    level = "c{next} as (select * from c{last} l, c{last} r)"
    levels = [level.format(next=last + 1, last=last) for last in range(40)]
    sql = " ".join([", ".join(["with c0 as (select id, x from s.a)", *levels]), "select id from c40"])
    assert read(sql) == {}
    assert read(sql.replace("from c40", "from c2")) == {"id": {"s.a.id:I"}}


def test_known_schemas_expand_stars_and_tell_whose_a_column_is() -> None:
    assert read("insert into t select * from s.a", schemas=KNOWN) == {"id": {"s.a.id:I"}, "X": {"s.a.X:I"}}
    assert read("select X, y from s.a, s.b", schemas=KNOWN) == {"X": {"s.a.X:I"}, "y": {"s.b.y:I"}}
    assert read("select id from s.a join s.b using (id)", schemas=KNOWN) == {"id": {"s.a.id:I", "s.b.id:I"}}


def test_a_column_that_may_come_from_two_tables_is_not_guessed() -> None:
    assert read("select z from s.a, s.b") == {}


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        # `amount` is in no schema: of one table in scope, or qualified, it is an edge all the same
        ("create table t as select id, amount from s.a", {"id": {"s.a.id:I"}, "amount": {"s.a.amount:I"}}),
        ("create table t as select a.amount from s.a join s.b on a.id = b.id", {"amount": {"s.a.amount:I"}}),
        ("with c as (select id, amount from s.a) select sum(amount) as n from c", {"n": {"s.a.amount:A"}}),
        ("with c as (select * from s.a) select amount from c", {"amount": {"s.a.amount:I"}}),
        # of two tables that may both have it, nobody can tell whose it is
        ("create table t as select amount from s.a join s.b on a.id = b.id", {}),
        ("create table t as select X, amount from s.a join s.b on a.id = b.id", {"X": {"s.a.X:I"}}),
    ],
)
def test_a_column_that_a_partial_schema_lacks_is_a_source_if_only_one_table_can_have_it(
    sql: str, lineage: dict[str, set[str]]
) -> None:
    assert read(sql, schemas=KNOWN) == lineage


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t (a, b, c) select id, x from s.a",
        "insert into t (a) select id, x from s.a",
        "insert into t (a, b, c) select * from s.a",
    ],
)
def test_a_list_of_columns_of_another_length_than_the_select_is_not_mapped_by_position(sql: str) -> None:
    assert read(sql, schemas=KNOWN) == {}


def test_a_star_that_nobody_can_expand_does_not_shift_the_listed_columns() -> None:
    assert read("insert into t (a, b, c) select *, x from s.a") == {}


@pytest.mark.parametrize("dialect", ["snowflake", "bigquery", "spark", "trino", "mysql", ""])
def test_names_keep_the_case_they_are_written_in(dialect: str) -> None:
    assert read("select Id as OrderId from Sales.Orders", dialect) == {"OrderId": {"Sales.Orders.Id:I"}}


def test_the_target_is_told() -> None:
    (statement,) = statements_of("insert into db.s.t select id from s.a", "postgres", ())
    assert (statement.target, statement.temporary, statement.width) == (("db", "s", "t"), False, 1)


@pytest.mark.parametrize(
    "sql",
    [
        "select (",
        "not sql at all",
        "\x00\x01",
        "select " + "(" * 5000 + "1" + ")" * 5000,
        " + ".join(["select x", *["x"] * 4000, "1 as s from a"]),
        " ".join(["select x from a", "--", "y" * MAX_SQL_LENGTH]),
        "GRANT ALL ON x TO y",
        "select * from a; drop table b; select (",
    ],
    ids=["open", "prose", "control", "deep", "wide", "long", "grant", "several"],
)
def test_what_cannot_be_analysed_says_nothing_and_warns_of_nothing(sql: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert statements_of(sql, "postgres", ()) == ()
    assert caplog.records == []


def nested(call: str, levels: int, inner: str = "x") -> str:
    return f"{call}(" * levels + inner + ")" * levels


def selected(expression: str) -> str:
    return " ".join(["select", expression, "as k from s.a"])


# The parser's work doubles with each level: unbounded, these texts would take seconds, and deeper ones for ever.
@pytest.mark.parametrize("dialect", ["spark", "athena", ""])
@pytest.mark.parametrize(
    "expression",
    [
        nested("date", 16),
        nested("decimal", 16),
        nested("timestamp", 16),
        f"cast(x as {{quote}}{nested('decimal', 17, '1')}{{quote}})",
    ],
    ids=["date", "decimal", "timestamp", "quoted"],
)
def test_calls_that_look_like_types_inside_each_other_are_given_up(expression: str, dialect: str) -> None:
    assert read(selected(expression.format(quote="`" if dialect == "spark" else '"')), dialect) == {}


@pytest.mark.parametrize("dialect", ["spark", "athena", ""])
def test_a_few_of_them_and_many_levels_of_others_are_followed(dialect: str) -> None:
    followed = {"k": {"s.a.x:T"}}
    assert read(selected("cast(date(coalesce(timestamp(date(x)), x)) as decimal(10, 2))"), dialect) == followed
    assert read(selected(nested("f", MAX_NESTING)), dialect) == followed
    assert read(selected(nested("f", MAX_NESTING + 1)), dialect) == {}


def test_answers_are_remembered() -> None:
    statements_of.cache_clear()
    for _ in range(3):
        statements_of("select id from s.a", "postgres", ())
    assert statements_of.cache_info().misses == 1


@pytest.mark.parametrize(
    ("written", "full", "same"),
    [
        (("A",), ("db", "s", "a"), True),
        (("s", "a"), ("db", "s", "a"), True),
        (("x", "db", "s", "a"), ("db", "s", "a"), True),
        (("t", "a"), ("db", "s", "a"), False),
        ((), ("a",), False),
    ],
)
def test_a_table_may_be_written_without_its_database(
    written: tuple[str, ...], full: tuple[str, ...], same: bool
) -> None:
    assert same_table(written, full) is same

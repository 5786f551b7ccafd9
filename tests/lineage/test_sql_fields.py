"""Fields of structs: an edge to the column of the dotted path, if the statement's name can mean nothing else."""

from typing import Any

import pytest

from tests.lineage.test_sql_targets import links_of
from tests.lineage.wire import dataset, run_event

HOST = "postgres://db:5432"
PLACE = {"name": "place", "type": "struct", "fields": [{"name": "city", "type": "text"}]}
PAYLOAD = {"name": "payload", "type": "struct", "fields": [{"name": "Amount", "type": "int"}, PLACE]}
ORDERS = [PAYLOAD, {"name": "id", "type": "int"}]
DIALECTS = ["spark", "bigquery", "trino", "duckdb", "postgres", "snowflake", "clickhouse"]
AMOUNT = {"amt<-orders.payload.Amount:IDENTITY"}


def edges(sql: str, dialect: str = "spark", **inputs: list[dict[str, Any]]) -> set[str]:
    """`column of the output<-table.column:subtype`; a table without columns has no schema facet."""
    read = [
        dataset(HOST, f"d.s.{name}", **({"schema": {"fields": fields}} if fields else {}))
        for name, fields in inputs.items()
    ]
    raw = run_event(inputs=read, outputs=[dataset(HOST, "d.s.t")])
    raw["job"]["facets"] = {"sql": {"query": sql, "dialect": dialect}}
    return {
        f"{'.'.join(link.source.name[4:])}<-{'.'.join(link.target.name[3:])}:{link.props['transformationSubtype']}"
        for link in links_of(raw)
    }


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "select o.payload.amount as amt from orders o",
        "select payload.amount as amt from orders",
        "select payload.amount as amt from orders o join others x on o.id = x.id",
        "select orders.payload.amount as amt from orders",
        "select s.orders.payload.amount as amt from s.orders",
        "with c as (select payload as p from orders) select c.p.amount as amt from c",
        "with c as (select * from orders) select payload.amount as amt from c",
        "select q.payload.amount as amt from (select payload from orders) q",
        "select payload.amount as amt from (select payload from orders) payload",
    ],
)
def test_a_field_of_a_struct_is_the_column_of_its_path(sql: str, dialect: str) -> None:
    assert edges(sql, dialect, orders=ORDERS, others=[{"name": "id"}]) == AMOUNT


@pytest.mark.parametrize(
    "sql",
    [
        "select (o.payload).amount as amt from orders o",
        "select (payload).amount as amt from orders",
        "select ((o).payload).amount as amt from orders o",
    ],
)
def test_a_field_behind_parentheses_is_one_too(sql: str) -> None:
    assert edges(sql, "postgres", orders=ORDERS) == AMOUNT


def test_the_columns_inside_of_a_field_come_along_and_what_is_computed_from_one_says_so() -> None:
    assert edges("select o.payload.place as p from orders o", orders=ORDERS) == {
        "p<-orders.payload.place:IDENTITY",
        "p.city<-orders.payload.place.city:IDENTITY",
    }
    assert edges("select o.payload.place.city as c from orders o", orders=ORDERS) == {
        "c<-orders.payload.place.city:IDENTITY"
    }
    assert edges("select sum(payload.amount) as n from orders", orders=ORDERS) == {
        "n<-orders.payload.Amount:AGGREGATION"
    }
    assert edges("select upper(q.place.city) as c from (select o.payload.place from orders o) q", orders=ORDERS) == {
        "c<-orders.payload.place.city:TRANSFORMATION"
    }


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select o.payload.tax as k from orders o", "payload"),
        ("select payload.tax as k from orders", "payload"),
        ("select payload.tax + payload.fee as k from orders", "payload"),
        ("select o.payload.place.street as k from orders o", "payload.place"),
        ("with c as (select lower(payload) as p from orders) select c.p.amount as k from c", "payload"),
        ("select o.extra.tax as k from orders o", "extra"),
    ],
)
def test_a_field_that_no_event_lists_is_a_part_of_the_innermost_column_around_it(sql: str, found: str) -> None:
    assert edges(sql, orders=ORDERS) == {f"k<-orders.{found}:TRANSFORMATION"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "select payload.amount as amt from orders join payload on true",
        "select payload.amount as amt from orders join s.payload on true",
        "select payload.amount as amt from orders o join x as payload on true",
        "with payload as (select amount from x) select payload.amount as amt from orders, payload",
    ],
)
def test_what_a_table_or_an_alias_is_called_is_no_struct(sql: str, dialect: str) -> None:
    found = edges(sql, dialect, orders=ORDERS, payload=[], x=[])
    assert found in ({"amt<-payload.amount:IDENTITY"}, {"amt<-x.amount:IDENTITY"})


@pytest.mark.parametrize(
    "sql",
    [
        "select payload.amount as amt from orders, more",  # both list it
        "select extra.amount as amt from orders",  # nobody lists it: it may be a sequence
        "select d.orders.id as amt from orders o, more",  # of the database that the FROM leaves out
        "select payload.amount as amt from x",
        "select payload.amount as amt from orders array join items as payload",
        "select (select payload.amount from orders) as amt from x as payload",
    ],
)
def test_a_name_that_may_mean_two_things_is_no_edge(sql: str) -> None:
    dialect = "clickhouse" if "array join" in sql else "spark"
    assert edges(sql, dialect, orders=ORDERS, more=ORDERS, x=[]) == set()


def test_a_field_that_an_event_lists_as_a_column_of_its_own_is_that_column() -> None:
    flat = [{"name": "payload.amount", "type": "int"}, {"name": "id", "type": "int"}]
    assert edges("select payload.amount as k from orders", orders=flat) == {"k<-orders.payload.amount:IDENTITY"}
    assert edges("select o.payload.amount as k from orders o", orders=flat) == {"k<-orders.payload.amount:IDENTITY"}

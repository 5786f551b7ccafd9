"""Every row of every table, so that a test can say of a whole database that it is as before."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Engine, Select, inspect, literal_column, select, table

Rows = list[tuple[str, ...]]


def rows_of_every_table(engine: Engine, *, without: Collection[str] = ()) -> dict[str, Rows]:
    """As the database itself spells them, also of tables that are not the platform's own, such as Dagster's."""
    with engine.connect() as connection:
        return {
            name: sorted(tuple(map(str, row)) for row in connection.execute(_all_of(name)))
            for name in inspect(connection).get_table_names()
            if name not in without
        }


def _all_of(name: str) -> Select[tuple[Any, ...]]:
    return select(literal_column("*")).select_from(table(name))

"""Lets a migration that died half-way finish on the next try: on MySQL every DDL statement commits by itself."""

from typing import Any

from alembic.ddl.mysql import MySQLImpl
from sqlalchemy import Column, Connection, Index, inspect


class ResumableMySQLImpl(MySQLImpl):
    """MySQL knows neither CREATE INDEX IF NOT EXISTS nor ADD COLUMN IF NOT EXISTS: this looks before it creates."""

    __dialect__ = "mysql"

    def create_index(self, index: Index, **kw: Any) -> None:
        if not (kw.pop("if_not_exists", False) and _has_index(self.connection, index)):
            super().create_index(index, **kw)

    def add_column(self, table_name: str, column: Column[Any], **kw: Any) -> None:
        if not (kw.pop("if_not_exists", False) and _has_column(self.connection, table_name, column.name)):
            super().add_column(table_name, column, **kw)


def _has_index(connection: Connection | None, index: Index) -> bool:
    if connection is None or index.table is None:
        return False
    return any(found["name"] == index.name for found in inspect(connection).get_indexes(index.table.name))


def _has_column(connection: Connection | None, table: str, column: str) -> bool:
    return connection is not None and any(found["name"] == column for found in inspect(connection).get_columns(table))

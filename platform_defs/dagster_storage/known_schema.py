"""Answers once what Dagster's storages ask the database before nearly every statement: which tables and columns it has.

Only a yes is remembered. A table or column that a migration adds is found when it is asked for the next time.
"""

from typing import Any

from sqlalchemy import Connection


class KnownRunSchema:
    """Put before a run storage."""

    _has_run_stats = False

    def has_run_stats_index_cols(self) -> bool:
        self._has_run_stats = self._has_run_stats or super().has_run_stats_index_cols()  # type: ignore[misc]
        return self._has_run_stats


class KnownEventSchema:
    """Put before an event log storage."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._known_tables: set[str] = set()
        self._known_columns: set[str] = set()
        super().__init__(*arguments, **options)

    def has_table(self, table_name: str) -> bool:
        if table_name not in self._known_tables and super().has_table(table_name):  # type: ignore[misc]
            self._known_tables.add(table_name)
        return table_name in self._known_tables

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._known_columns and super()._has_asset_key_col_on_connection(  # type: ignore[misc]
            conn, column_name
        ):
            self._known_columns.add(column_name)
        return column_name in self._known_columns

"""Dynamic partitions in the order of their keys, which several processes may add at the same moment.

Dagster lists them in the order in which they were added, and fails if two processes add the same one at once.
The keys of ours are opTimes, whose order as text is their order in time, whichever batch arrived first.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from dagster._core.storage.event_log.schema import DynamicPartitionsTable
from dagster._core.types.pagination import PaginatedResults
from sqlalchemy import Connection, Insert, select
from sqlalchemy.dialects import mysql, sqlite


class _EventLogStorage(Protocol):
    def index_connection(self) -> AbstractContextManager[Connection]: ...


_table = DynamicPartitionsTable.c


class OrderedPartitions:
    """Put before an event log storage; pages continue after the last key of the page before."""

    def add_dynamic_partitions(self: _EventLogStorage, partitions_def_name: str, partition_keys: Sequence[str]) -> None:
        """Dagster's own looks which keys are there and inserts the others: a key that comes in between is an error."""
        if not partition_keys:
            return
        rows = [{"partitions_def_name": partitions_def_name, "partition": key} for key in partition_keys]
        with self.index_connection() as connection:
            connection.execute(_insert_unless_there(connection.dialect.name), rows)

    def get_dynamic_partitions(self: _EventLogStorage, partitions_def_name: str) -> Sequence[str]:
        query = select(_table.partition).where(_table.partitions_def_name == partitions_def_name)
        with self.index_connection() as connection:
            return list(connection.scalars(query.order_by(_table.partition)))

    def get_paginated_dynamic_partitions(
        self: _EventLogStorage, partitions_def_name: str, limit: int, ascending: bool, cursor: str | None = None
    ) -> PaginatedResults[str]:
        key = _table.partition
        query = select(key).where(_table.partitions_def_name == partitions_def_name)
        if cursor:
            query = query.where(key > cursor if ascending else key < cursor)
        query = query.order_by(key if ascending else key.desc()).limit(limit + 1)
        with self.index_connection() as connection:
            found = list(connection.scalars(query))
        keys = found[:limit]
        return PaginatedResults(results=keys, cursor=keys[-1] if keys else cursor or "", has_more=len(found) > limit)


def _insert_unless_there(dialect: str) -> Insert:
    if dialect == "sqlite":
        return sqlite.insert(DynamicPartitionsTable).on_conflict_do_nothing()
    insert = mysql.insert(DynamicPartitionsTable)
    return insert.on_duplicate_key_update(partition=insert.inserted.partition)

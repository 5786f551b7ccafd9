"""Dagster's SQLite storage with one engine per process and one event log for all runs.

Dagster's own storage builds an engine for every statement, so that every statement is compiled again. It also creates
a database for every run, and reads all migrations whenever an instance is opened. This costs a third of a short run.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from dagster import StringSource
from dagster._core.event_api import EventHandlerFn
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage
from dagster._core.storage.event_log.polling_event_watcher import SqlPollingEventWatcher
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sqlite import create_db_conn_string
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine, event

from platform_defs.dagster_storage.engines import inherit
from platform_defs.dagster_storage.known_schema import KnownEventSchema, KnownRunSchema
from platform_defs.dagster_storage.ordered_partitions import OrderedPartitions
from platform_defs.dagster_storage.parts import OVERFLOW, POOL_SIZE, StorageOfParts
from platform_defs.store.engine import POOL_TIMEOUT_S, SQLITE_BUSY_TIMEOUT_S


@cache
def _engine_of(url: str) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": SQLITE_BUSY_TIMEOUT_S, "check_same_thread": False},
        pool_size=POOL_SIZE,
        max_overflow=OVERFLOW,
        pool_timeout=POOL_TIMEOUT_S,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        # With a write-ahead log a killed process loses nothing. A power cut may lose the last events.
        connection.execute("PRAGMA synchronous=NORMAL").close()

    return inherit(engine)


class _OneEngine:
    """Takes connections from the engine of this process wherever a storage would build an engine."""

    _conn_string: str

    @property
    def shared_engine(self) -> Engine:
        return _engine_of(self._conn_string)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with self.shared_engine.begin() as connection:
            yield connection

    def dispose(self) -> None:
        self.shared_engine.dispose()
        super().dispose()  # type: ignore[misc]


class EmbeddedRunStorage(_OneEngine, KnownRunSchema, SqliteRunStorage):
    """Runs."""


class EmbeddedScheduleStorage(_OneEngine, SqliteScheduleStorage):
    """Schedules, sensors and backfills."""


class EmbeddedEventLogStorage(_OneEngine, OrderedPartitions, KnownEventSchema, ConsolidatedSqliteEventLogStorage):
    """Events and assets of all runs in one file."""

    _watcher: SqlPollingEventWatcher | None = None

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        with self.connect() as connection:
            yield connection

    # Dagster waits for changes of the file, but a write-ahead log leaves that as it is: the UI would show no new event
    # of a run that goes on. The storages on servers poll, and so does this one.

    def watch(self, run_id: str, cursor: str | None, callback: EventHandlerFn) -> None:
        if self._watcher is None:
            self._watcher = SqlPollingEventWatcher(self)
        self._watcher.watch_run(run_id, cursor, callback)

    def end_watch(self, run_id: str, handler: EventHandlerFn) -> None:
        if self._watcher is not None:
            self._watcher.unwatch_run(run_id, handler)

    def dispose(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        super().dispose()


class EmbeddedStorage(StorageOfParts):
    """`create` makes the files once, before any process starts. Opening them is then cheap."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(
            EmbeddedRunStorage(create_db_conn_string(base_dir, "runs")),
            EmbeddedEventLogStorage(base_dir),
            EmbeddedScheduleStorage(create_db_conn_string(base_dir, "schedules")),
            inst_data,
        )

    @staticmethod
    def create(base_dir: Path) -> None:
        """Creates the tables of runs, events and schedules."""
        EmbeddedRunStorage.from_local(str(base_dir)).dispose()
        EmbeddedScheduleStorage.from_local(str(base_dir)).dispose()
        EmbeddedEventLogStorage(str(base_dir)).dispose()

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"base_dir": StringSource}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "EmbeddedStorage":
        return cls(config_value["base_dir"], inst_data)

"""Dagster's MySQL storage with a pool of connections: dagster-mysql opens one per statement, 68 ms each over TLS."""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from dagster._config.config_schema import UserConfigSchema
from dagster._core.storage.config import MySqlStorageConfig, mysql_config
from dagster._serdes import ConfigurableClassData
from dagster_mysql.event_log import MySQLEventLogStorage
from dagster_mysql.run_storage import MySQLRunStorage
from dagster_mysql.schedule_storage import MySQLScheduleStorage
from dagster_mysql.utils import mysql_url_from_config
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL

from platform_defs.dagster_storage.engines import inherit
from platform_defs.dagster_storage.known_schema import KnownEventSchema, KnownRunSchema
from platform_defs.dagster_storage.ordered_partitions import OrderedPartitions
from platform_defs.dagster_storage.parts import OVERFLOW, POOL_SIZE, StorageOfParts
from platform_defs.store.engine import CONNECT_TIMEOUT_S, POOL_TIMEOUT_S, SOCKET_TIMEOUT_S
from platform_defs.store.migration_lock import migration_lock
from platform_defs.store.mysql_driver import prepare_driver

RECYCLE_S = 1800


@cache
def _engine_of(url: str) -> Engine:
    prepare_driver()
    engine = create_engine(
        url,
        isolation_level="REPEATABLE READ",  # As dagster-mysql has it.
        connect_args={
            "connection_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": SOCKET_TIMEOUT_S,
            "write_timeout": SOCKET_TIMEOUT_S,
            "collation": "utf8mb4_bin",
            # Dagster takes every time for UTC, also those that the server fills in by its own clock.
            "time_zone": "+00:00",
        },
        pool_size=POOL_SIZE,
        max_overflow=OVERFLOW,
        pool_timeout=POOL_TIMEOUT_S,
        pool_recycle=RECYCLE_S,
        pool_pre_ping=True,
    )
    return inherit(engine)


class _OneEngine:
    """Gives a storage the engine of this process wherever it would use its own."""

    mysql_url: str

    @property
    def _engine(self) -> Engine:
        return _engine_of(self.mysql_url)

    @_engine.setter
    def _engine(self, unpooled: Engine) -> None:
        unpooled.dispose()

    def dispose(self) -> None:
        self._engine.dispose()
        super().dispose()  # type: ignore[misc]

    def optimize_for_webserver(self, statement_timeout: int, pool_recycle: int, max_overflow: int) -> None:
        """Does nothing: the pool is large enough for the webserver."""


class PooledRunStorage(_OneEngine, KnownRunSchema, MySQLRunStorage):
    """Runs."""


class PooledEventLogStorage(_OneEngine, OrderedPartitions, KnownEventSchema, MySQLEventLogStorage):
    """Events and assets."""


class PooledScheduleStorage(_OneEngine, MySQLScheduleStorage):
    """Schedules, sensors and backfills."""


class PooledMySQLStorage(StorageOfParts):
    """The storage of dagster-mysql with one pool per process for runs, events and schedules together."""

    def __init__(self, mysql_url: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(
            PooledRunStorage(mysql_url), PooledEventLogStorage(mysql_url), PooledScheduleStorage(mysql_url), inst_data
        )

    @staticmethod
    def create(url: URL) -> None:
        """Creates the tables under a lock: if two processes did it at the same time, the second would fail."""
        with migration_lock(url):
            PooledMySQLStorage(url.render_as_string(hide_password=False)).run_storage.dispose()

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        return mysql_config()

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "PooledMySQLStorage":
        return cls(inst_data=inst_data, mysql_url=mysql_url_from_config(cast("MySqlStorageConfig", config_value)))

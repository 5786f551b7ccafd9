"""The relational store as a Dagster resource."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import ConfigurableResource, InitResourceContext
from pydantic import Field, PrivateAttr
from sqlalchemy import Engine

from platform_defs.connections import open_database


class DatabaseResource(ConfigurableResource["DatabaseResource"]):
    """The database of PLATFORM_DB_URL. The URL is not configured on the resource: the UI would show its password."""

    pool_size: int = Field(default=5, gt=0, description="Connections that one run may hold at a time.")

    _engine: Engine | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator["DatabaseResource"]:
        with self.open() as engine:
            self._engine = engine
            try:
                yield self
            finally:
                self._engine = None

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """The engine within a `with` block, for sensors: they have no run that opens the resource."""
        with open_database(pool_size=self.pool_size) as engine:
            yield engine

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the database resource is only open during a run")
        return self._engine

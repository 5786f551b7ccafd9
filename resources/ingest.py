"""What ingest works with, as a Dagster resource: the database, a compiler over the Registry, a door to the sources."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import ConfigurableResource, ResourceDependency
from pydantic import Field

from platform_defs.ingest.execution.executor import utc_now
from platform_defs.ingest.materialisation import IngestEnvironment
from platform_defs.ingest.opening import thresholds_of
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.transport.http_source import HttpSource
from platform_defs.ingest.transport.recent_trouble import RecentTrouble
from platform_defs.settings import Settings
from resources.database import DatabaseResource
from resources.http import HttpResource


class IngestResource(ConfigurableResource["IngestResource"]):
    """Opens the way to the sources for the length of a run; every request passes the rate gate."""

    database: ResourceDependency[DatabaseResource]
    http: ResourceDependency[HttpResource]
    threads: int = Field(default=4, gt=0, le=32, description="Slices that one run fetches at a time.")

    @contextmanager
    def opened(self) -> Iterator[IngestEnvironment]:
        engine, trouble = self.database.engine, RecentTrouble()
        with self.http.door(on_retry=trouble.tell) as door:
            yield IngestEnvironment(
                engine,
                compile=lambda code, endpoint, operation: compile_spec(
                    engine, code, endpoint, operation, now=utc_now()
                ),
                open_source=lambda spec: HttpSource(spec, door, engine),
                threads=self.threads,
                thresholds=thresholds_of(Settings.load()),
                trouble=trouble,
            )

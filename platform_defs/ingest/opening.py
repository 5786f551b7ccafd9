"""Opens what ingest works with outside of a Dagster run: a compiler over the Registry, and a door to the sources."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from platform_defs.http_door.door import Door
from platform_defs.ingest.execution.executor import utc_now
from platform_defs.ingest.materialisation import IngestEnvironment
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.tasks.health import Thresholds
from platform_defs.ingest.transport.http_source import HttpSource
from platform_defs.ingest.transport.recent_trouble import RecentTrouble
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.settings import Settings


def thresholds_of(settings: Settings) -> Thresholds:
    return Thresholds(
        settings.ingest_most_429,
        settings.ingest_most_errors,
        settings.ingest_slow_page_s,
        settings.ingest_slow_database_s,
    )


@contextmanager
def open_environment(engine: Engine, threads: int) -> Iterator[IngestEnvironment]:
    """The gate has connections of its own, since its statements must never wait for those of a harvest."""
    gate_engine, trouble = open_gate_engine(engine.url), RecentTrouble()
    try:
        with Door(RateGate(gate_engine), on_retry=trouble.tell) as door:
            yield IngestEnvironment(
                engine,
                compile=lambda code, endpoint, op: compile_spec(engine, code, endpoint, op, now=utc_now()),
                open_source=lambda spec: HttpSource(spec, door, engine),
                threads=threads,
                thresholds=thresholds_of(Settings.load()),
                trouble=trouble,
            )
    finally:
        gate_engine.dispose()

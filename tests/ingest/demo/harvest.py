"""Harvests from a demo source as the platform does: Registry, compiler, door and executor, over real HTTP."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, select

from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.http_door.door import Door
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.materialisation import IngestEnvironment, PartitionResult, materialise_windows
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.transport.http_source import HttpSource
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_record

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
DAY = Window(datetime(2026, 11, 10, tzinfo=UTC), datetime(2026, 11, 11, tzinfo=UTC))
CONTEXT = TriggerContext(Trigger.MANUAL, "test")
ENDPOINTS = {"demo_pubmed": "search", "demo_crossref": "works"}


@dataclass
class Harvester:
    """`change` alters the compiled spec, for what the Registry would not accept."""

    engine: Engine
    door: Door
    overrides: Mapping[str, Any]
    now: datetime = NOW
    change: Callable[[Spec], Spec] = lambda spec: spec
    threads: int = 2

    def compile(self, code: str, endpoint: str, operation: Operation) -> CompiledSpec:
        compiled = compile_spec(self.engine, code, endpoint, operation, overrides=self.overrides, now=self.now)
        spec = replace(
            compiled.spec, rate=replace(compiled.spec.rate, refill_per_s=1000.0, burst=100, max_concurrent=None)
        )
        spec = replace(spec, retry=replace(spec.retry, initial_delay_ms=1, max_delay_ms=2))
        changed: Spec = self.change(spec)
        return replace(compiled, spec=changed)

    @property
    def environment(self) -> IngestEnvironment:
        return IngestEnvironment(
            self.engine,
            self.compile,
            lambda spec: HttpSource(spec, self.door, self.engine),
            clock=lambda: self.now,
            threads=self.threads,
        )

    def harvest(self, code: str, *windows: Window, operation: Operation = Operation.HARVEST) -> list[PartitionResult]:
        return materialise_windows(self.environment, code, ENDPOINTS[code], operation, windows or (DAY,), CONTEXT)


@contextmanager
def opened_harvester(engine: Engine, url: str, overrides: Mapping[str, Any] | None = None) -> Iterator[Harvester]:
    load_demo_sources(engine, url, now=NOW - timedelta(days=1))
    gate_engine = open_gate_engine(engine.url)
    try:
        with Door(RateGate(gate_engine)) as door:
            yield Harvester(engine, door, overrides or {})
    finally:
        gate_engine.dispose()


def stored_ids(engine: Engine, code: str) -> list[str]:
    query = select(ing_record.c.provider_id).where(ing_record.c.provenance_code == code)
    return sorted(read(engine, lambda connection: connection.execute(query).scalars().all()))


def ids_of_truth(records: list[dict[str, str]], code: str) -> list[str]:
    """As they are stored: DOIs in lower case."""
    return sorted(record["pmid"] if code == "demo_pubmed" else record["doi"].lower() for record in records)

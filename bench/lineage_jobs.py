"""Benchmark of a table that many jobs write: what the last of 10,000 jobs, each run once, costs against the hundredth.

Run it as `python -m bench.lineage_jobs [--jobs 10000] [embedded] [neo4j]`. Events around the hundredth and the last are
committed one by one and measured, those between in groups. The rows are in SQLite, the graph there or in Neo4j.
"""

import argparse
import statistics
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import randrange
from typing import Any, NamedTuple

from sqlalchemy import Engine

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.graph.open import open_graph
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.commit import Committer
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.needs import require

START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = 100
GROUP = 50
COLUMNS = [f"c{number}" for number in range(8)]


class Cost(NamedTuple):
    """Medians in milliseconds."""

    wall: float
    cpu: float


def event(number: int) -> dict[str, Any]:
    fields = [{"name": name, "type": "int"} for name in COLUMNS]
    lineage = {name: {"inputFields": [{"namespace": "pg://h", "name": "s.raw", "field": name}]} for name in COLUMNS}
    facets = {"schema": {"fields": fields}, "columnLineage": {"fields": lineage}}
    return {
        "eventType": "COMPLETE",
        "eventTime": (START + timedelta(seconds=number)).isoformat(),
        "producer": "bench",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": "bench", "name": f"job{number}"},
        "inputs": [{"namespace": "pg://h", "name": "s.raw", "facets": {"schema": {"fields": fields}}}],
        "outputs": [{"namespace": "pg://h", "name": "s.mart", "facets": facets}],
    }


def measure(committer: Committer, intake: Intake, principal: Principal, first: int, last: int) -> Cost:
    costs: list[Cost] = []
    for number in range(first, last):
        prepared = intake.prepare(principal, event(number)).prepared
        began, cpu = time.perf_counter(), time.process_time()
        committer.commit([prepared])
        costs.append(Cost(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu)))
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def run(name: str, engine: Engine, graph_url: str, jobs: int) -> None:
    number = randrange(10**9, 10**12)
    tenant = Tenant(number, f"t{number}", "Bench")
    add_tenant(engine, tenant)
    graph = open_graph(Settings(graph_url=graph_url), engine)
    committer, intake = open_committer(engine, graph), Intake(KnownTenants(engine))
    principal = Principal("key", "bench", frozenset(), SourceType.COMPUTE, tenant)
    try:
        for at in range(WINDOW // 2):
            committer.commit([intake.prepare(principal, event(at)).prepared])
        early = measure(committer, intake, principal, WINDOW // 2, 3 * WINDOW // 2)
        for at in range(3 * WINDOW // 2, jobs - WINDOW, GROUP):
            some = range(at, min(at + GROUP, jobs - WINDOW))
            committer.commit([intake.prepare(principal, event(one)).prepared for one in some])
        late = measure(committer, intake, principal, jobs - WINDOW, jobs)
        print(
            f"{name}: around the 100th job {early.wall:.1f} ms ({early.cpu:.1f} ms CPU) an event, around the "
            f"{jobs:,}th {late.wall:.1f} ms ({late.cpu:.1f} ms CPU): ratio {late.wall / early.wall:.2f} "
            f"({late.cpu / early.cpu:.2f} CPU)",
            flush=True,
        )
    finally:
        committer.flush()
        committer.close()
        graph.for_tenant(tenant.id).clear()
        graph.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", default=["embedded", "neo4j"])
    parser.add_argument("--jobs", type=int, default=10_000)
    arguments = parser.parse_args()
    for place in arguments.places:
        with tempfile.TemporaryDirectory() as folder:
            engine = open_engine(f"sqlite:///{Path(folder, 'bench.db')}")
            migrate.upgrade(engine)
            run(place, engine, "embedded" if place == "embedded" else require("neo4j"), arguments.jobs)
            engine.dispose()


if __name__ == "__main__":
    main()

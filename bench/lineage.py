"""Benchmark of the lineage sink: events/s and latency on real events, gain of group commit, cost of a million rows.

Run it as `python -m bench.lineage [--seconds 8] [--rows 1000000] [embedded] [servers]`. Load generator, API and servers
share this machine, so the numbers contain all of them. The load is the corpus of real events, made unique by run id and
time; "repeating" events come from a few jobs whose runs say the same again, as in production.
"""

import argparse
import asyncio
import csv
import json
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from bench.cpu_times import CpuTimes
from platform_defs.access.keys import issue_key
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.graph.open import open_graph
from platform_defs.lineage.sink.commit import CommitResult
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.upsert import upsert
from tests.api.serving import environment
from tests.e2e.serving import SERVE, Serving
from tests.needs import require

CLIENTS = (1, 16, 64)
WARM_UP_S = 2.0
# A server that has just started still compiles and fills caches, so the load runs unmeasured until its rate is steady.
STEADY = 0.1
STEADY_AT_MOST = 12
BULK_CHUNK = 5000
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Measured:
    rate: float
    p50_ms: float
    p99_ms: float
    failed: int

    def __str__(self) -> str:
        failed = f", {self.failed} not 201" if self.failed else ""
        return f"{self.rate:8.0f} events/s   p50 {self.p50_ms:6.1f} ms   p99 {self.p99_ms:6.1f} ms{failed}"


# What Marquez 0.51 took on the same kind of machine with the same events and 64 clients.
MARQUEZ_RATE, MARQUEZ_P50_MS = 53.0, 1085.0


@dataclass(frozen=True)
class Place:
    env: dict[str, str]
    url: URL
    tenant: Tenant
    key: str
    ports: dict[str, int]


# -- the load -------------------------------------------------------------------------------------------------------


def corpus() -> list[dict[str, Any]]:
    folder = Path(require("data")) / "openlineage"
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        rows = [row for row in csv.DictReader(index, delimiter="\t") if row["lenient_ok"] == "1"]
    found = [json.loads((folder / row["file"]).read_text(encoding="utf-8")) for row in rows]
    return [event for event in found if isinstance(event, dict) and event.get("run")]


class Load:
    """Builds requests before the measurement begins, so that building them is not measured."""

    def __init__(self, events: Sequence[dict[str, Any]], *, repeating: bool = False) -> None:
        # production repeats itself: few jobs, each with many runs
        self._events = events[::10] if repeating else events
        self._chance = random.Random(1)
        self._time = datetime(2026, 1, 1, tzinfo=UTC)

    def requests(self, count: int, host: str, key: str) -> list[bytes]:
        return [self._request(host, key) for _ in range(count)]

    def _request(self, host: str, key: str) -> bytes:
        self._time += timedelta(milliseconds=1)
        event = dict(self._chance.choice(self._events))
        event["eventTime"] = self._time.isoformat()
        event["run"] = {**event["run"], "runId": str(uuid.UUID(int=self._chance.getrandbits(128)))}
        body = json.dumps(event).encode()
        head = (
            f"POST /api/openlineage HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def _client(
    host: str, port: int, requests: list[bytes], until: float, times: list[float], failed: list[int]
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        while requests and time.perf_counter() < until:
            started = time.perf_counter()
            writer.write(requests.pop())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            times.append(time.perf_counter() - started)
            if not head.startswith(b"HTTP/1.1 201"):
                failed.append(int(head[9:12]))
    finally:
        writer.close()
        await writer.wait_closed()


def measure(apis: str | Sequence[str], key: str, load: Load, clients: int, seconds: float) -> Measured:
    """Clients take the API processes in turn."""
    places = [urlsplit(api) for api in ([apis] if isinstance(apis, str) else apis)]

    def drive(count: int, seconds: float) -> tuple[list[float], list[int], float]:
        requests = load.requests(count, places[0].netloc, key)
        times: list[float] = []
        failed: list[int] = []

        async def main() -> None:
            until = time.perf_counter() + seconds
            await asyncio.gather(
                *(
                    _client(str(place.hostname), int(place.port or 0), requests, until, times, failed)
                    for place in islice(cycle(places), clients)
                )
            )

        started = time.perf_counter()
        asyncio.run(main())
        return times, failed, time.perf_counter() - started

    first, _, took = drive(3000, WARM_UP_S)
    expected = int(len(first) / took * seconds * 2) + 100
    times, failed, took = drive(expected, seconds)
    times.sort()
    return Measured(len(times) / took, times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000, len(failed))


def warm_up(api: str, key: str, load: Load) -> None:
    """Runs load that is not measured, until two rounds in a row have about the same rate."""
    before = 0.0
    for _ in range(STEADY_AT_MOST):
        rate = measure(api, key, load, max(CLIENTS), WARM_UP_S).rate
        if abs(rate - before) < STEADY * rate:
            return
        before = rate


# -- the places -----------------------------------------------------------------------------------------------------


@contextmanager
def embedded() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        url = URL.create("sqlite", database=f"{folder}/platform.db")
        with _prepared(url, Path(folder), "embedded") as place:
            yield place


@contextmanager
def servers() -> Iterator[Place]:
    server = make_url(require("mysql")).set(drivername="mysql+mysqlconnector", database=None)
    server = server.update_query_dict({"ssl_disabled": "true"})
    name = f"platform_bench_{uuid.uuid4().hex[:12]}"
    administration = create_engine(server, isolation_level="AUTOCOMMIT")
    with administration.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"))
        try:
            with _prepared(server.set(database=name), Path(folder), require("neo4j")) as place:
                yield place
        finally:
            connection.execute(text(f"DROP DATABASE {name}"))
    administration.dispose()


@contextmanager
def _prepared(url: URL, home: Path, graph_url: str) -> Iterator[Place]:
    number = random.SystemRandom().randrange(10**6, 10**12)
    tenant = Tenant(number, f"t{number}", f"Bench {number}")
    engine = open_engine(url)
    graph = open_graph(Settings(graph_url=graph_url), engine)
    try:
        migrate.upgrade(engine)
        graph.ensure_schema()
        add_tenant(engine, tenant)
        key = issue_key(engine, "bench", {"lineage:write"}, tenant_id=tenant.id)
        env = environment(url, home, graph_url=graph_url, lineage_tenant_rate="0")
        ports = {"MySQL": url.port or 3306} if url.host else {}
        if graph_url != "embedded":
            ports["Neo4j"] = urlsplit(graph_url).port or 7687
        yield Place(env, url, tenant, key, ports)
        graph.for_tenant(tenant.id).clear()
    finally:
        graph.close()
        engine.dispose()


@contextmanager
def serving(env: dict[str, str], code: str = SERVE, **settings: str) -> Iterator[Serving]:
    with tempfile.TemporaryDirectory() as folder:
        named = {f"PLATFORM_LINEAGE_{name.upper()}": value for name, value in settings.items()}
        running = Serving(env | named, Path(folder), code)
        try:
            yield running
        finally:
            running.stop()


class NoCommitter:
    """Accepts everything and writes nothing, to measure the cost of the rest of the request."""

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        return CommitResult()

    def flush(self) -> None:
        """Nothing to write."""

    def withdraw(self, event: PreparedEvent) -> None:
        """Nothing to delete."""

    def close(self) -> None:
        """Nothing to close."""


def serve_nothing() -> None:
    """Runs `platform serve` with a sink that writes nothing."""
    from platform_defs.api.lineage import service
    from platform_defs.cli import main

    nothing = NoCommitter()
    service.EmbeddedCommitter = service.ParallelCommitter = lambda *stores: nothing  # type: ignore
    main()


# -- what is measured -----------------------------------------------------------------------------------------------


def fill(place: Place, rows: int) -> None:
    """Inserts rows of about 500 bytes each, as many as years of events would leave."""
    engine = open_engine(place.url)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    try:
        for first in range(0, rows, BULK_CHUNK):
            chunk = [_bulk_row(place.tenant, number, start) for number in range(first, min(rows, first + BULK_CHUNK))]
            with engine.begin() as connection:
                upsert(connection, lineage_events, chunk, key=("tenant_id", "fingerprint"), update="nothing")
    finally:
        engine.dispose()


def _bulk_row(tenant: Tenant, number: int, start: datetime) -> dict[str, Any]:
    time = start + timedelta(seconds=number)
    run = str(uuid.UUID(int=number))
    return {
        "tenant_id": tenant.id,
        "tenant_code": tenant.code,
        "tenant_name": tenant.name,
        "event_time": time,
        "event_type": "COMPLETE",
        "run_uuid": run,
        "job_name": f"job{number % 1000}",
        "job_namespace": "bench",
        "producer": "bench",
        "_event_type": "RUN_EVENT",
        "event": {
            "eventTime": time.isoformat(),
            "eventType": "COMPLETE",
            "run": {"runId": run},
            "job": {"namespace": "bench", "name": f"job{number % 1000}"},
            "inputs": [{"namespace": "bench", "name": f"t{number % 500}", "facets": {"x": "y" * 100}}],
        },
        "fingerprint": f"{uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex}{number:032x}",
        "graph_applied_at": time,
    }


def report(name: str, place: Place, seconds: float, rows: int) -> None:
    print(f"\n{name}")
    load = Load(corpus())
    with serving(place.env) as api:
        warm_up(api.url, place.key, load)
        for clients in CLIENTS:
            times = CpuTimes([api], place.ports)
            found = measure(api.url, place.key, load, clients, seconds)
            print(f"  {clients:3} clients              {found}")
            print(f"                           {times.per_event(found.rate * (seconds + WARM_UP_S))}")
        empty = found
        print(f"  rate / Marquez           {empty.rate / MARQUEZ_RATE:8.2f}   (aim: 6)")
        print(f"  p99 / p50 of Marquez     {empty.p99_ms / MARQUEZ_P50_MS:8.2f}   (aim: below 1)")
        with serving(place.env) as second:
            both = [api.url, second.url]
            for name, some in (("two processes", load), ("two, repeating", Load(corpus(), repeating=True))):
                two = measure(both, place.key, some, 64, seconds)
                print(f"   64, {name:14}      {two}")
                print(f"  / one process {two.rate / empty.rate:5.2f}   / Marquez {two.rate / MARQUEZ_RATE:5.2f}")
        print(f"  peak memory of the API   {api.peak_memory() / MEBIBYTE:8.0f} MiB   (aim: under 300 MB)")
    with serving(place.env, group_events="1", linger_ms="0") as api:
        single = measure(api.url, place.key, load, 64, seconds)
        print(f"   64, a commit per event  {single}")
    with serving(place.env, code="from bench.lineage import serve_nothing; serve_nothing()") as api:
        nothing = measure(api.url, place.key, load, 64, seconds)
        print(f"   64, nothing written     {nothing}")
    print(f"  group commit / a commit per event      {empty.rate / single.rate:6.2f}   (aim: 8 on MySQL + Neo4j)")
    print(f"  sink / a handler that writes nothing   {empty.rate / nothing.rate:6.2f}   (aim: 0.3 embedded)")
    if rows:
        fill(place, rows)
        with serving(place.env) as api:
            full = measure(api.url, place.key, load, 64, seconds)
        print(f"   64, {rows:,} rows     {full}")
        print(f"  with {rows:,} rows / on empty tables {full.rate / empty.rate:6.2f}   (aim: 0.8)")


def main() -> None:
    places = {"embedded": embedded, "servers": servers}
    names = {"embedded": "embedded (SQLite)", "servers": "MySQL + Neo4j"}
    parser = argparse.ArgumentParser(description="What the lineage sink takes.")
    parser.add_argument("places", nargs="*", choices=[*places, []], help="default: both")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rows", type=int, default=1_000_000, help="bulk-loaded; 0 leaves that measurement out")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors for load generator, API and servers together")
    for name in arguments.places or places:
        with places[name]() as place:
            report(names[name], place, arguments.seconds, arguments.rows)


if __name__ == "__main__":
    main()

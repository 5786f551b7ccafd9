"""Benchmark of the lineage sink: events/s and latency on real events, gain of group commit, cost of a million rows.

Run it as `python -m bench.lineage [--seconds 8] [--rows 1000000] [embedded] [servers]`. Load generator, API and servers
share this machine, so the numbers contain all of them. The load is the corpus of real events, made unique by run id and
time; "repeating" events come from a few jobs whose runs say the same again, as in production.

With `--marquez URL` a Marquez that runs on this machine gets the same load first, and is what we are compared with;
otherwise it is what was measured on another machine.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from bench.cpu_times import CpuTimes
from bench.lineage_load import CLIENTS, WARM_UP_S, Beside, Load, Measured, corpus, measure, warm_up, wide_events
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

WIDE_CLIENTS, WIDE_JOBS = 4, 10
TENANTS = 4
BULK_CHUNK = 5000
MEBIBYTE = 1024 * 1024


# What Marquez 0.51 took on the same kind of machine with the same events and 64 clients.
MARQUEZ_ELSEWHERE = Measured(rate=53.0, p50_ms=1085.0, p99_ms=3250.0, failed=0, load_ms=0.0)


@dataclass(frozen=True)
class Place:
    env: dict[str, str]
    url: URL
    tenant: Tenant
    key: str
    other_keys: tuple[str, ...]
    ports: dict[str, int]


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
    _administer(server, f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            _prepared(server.set(database=name), Path(folder), require("neo4j")) as place,
        ):
            yield place
    finally:
        _administer(server, f"DROP DATABASE {name}")


def _administer(server: URL, statement: str) -> None:
    """On a connection of its own, because the server may be restarted in between."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@contextmanager
def _prepared(url: URL, home: Path, graph_url: str) -> Iterator[Place]:
    number = random.SystemRandom().randrange(10**6, 10**12)
    tenants = [Tenant(id, f"t{id}", f"Bench {id}") for id in range(number, number + TENANTS)]
    engine = open_engine(url)
    graph = open_graph(Settings(graph_url=graph_url), engine)
    try:
        migrate.upgrade(engine)
        graph.ensure_schema()
        for one in tenants:
            add_tenant(engine, one)
        key, *other_keys = (issue_key(engine, one.code, {"lineage:write"}, tenant_id=one.id) for one in tenants)
        env = environment(url, home, graph_url=graph_url, lineage_tenant_rate="0")
        ports = {"MySQL": url.port or 3306} if url.host else {}
        if graph_url != "embedded":
            ports["Neo4j"] = urlsplit(graph_url).port or 7687
        yield Place(env, url, tenants[0], key, tuple(other_keys), ports)
        for one in tenants:
            graph.for_tenant(one.id).clear()
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


def report(name: str, place: Place, seconds: float, rows: int, marquez: Measured) -> None:
    print(f"\n{name}")
    load = Load(corpus())
    with serving(place.env) as api:
        warm_up(api.url, place.key, load)
        for clients in CLIENTS:
            times = CpuTimes([api], place.ports)
            found = measure(api.url, place.key, load, clients, seconds)
            print(f"  {clients:3} clients              {found}")
            per_event = times.per_event(found.rate * (seconds + WARM_UP_S))
            print(f"                           {per_event}   (load generator {found.load_ms:.2f} ms)")
        empty = found
        print(f"  rate / Marquez           {empty.rate / marquez.rate:8.2f}   (aim: 6)")
        print(f"  p99 / p50 of Marquez     {empty.p99_ms / marquez.p50_ms:8.2f}   (aim: below 1)")
        with serving(place.env) as second:
            both = [api.url, second.url]
            # the events of one tenant are merged one group after the other, whichever process has them
            every_key = (place.key, *place.other_keys)
            for name, some, keys in (
                ("two processes", load, place.key),
                ("two, repeating", Load(corpus(), repeating=True), place.key),
                (f"two, {TENANTS} tenants", load, every_key),
            ):
                # one process directly before and after, because the machine is not the same all the time
                before = measure(api.url, keys, some, 64, seconds / 2).rate
                times = CpuTimes([api, second], place.ports)
                two = measure(both, keys, some, 64, seconds)
                per_event = times.per_event(two.rate * (seconds + WARM_UP_S))
                one = (before + measure(api.url, keys, some, 64, seconds / 2).rate) / 2
                print(f"   64, {name:14}      {two}")
                print(f"                           {per_event}   (load generator {two.load_ms:.2f} ms)")
                print(f"  / one process ({one:.0f}) {two.rate / one:5.2f}   / Marquez {two.rate / marquez.rate:5.2f}")
        report_wide(api, place, seconds)
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


def measure_marquez(url: str, seconds: float) -> Measured:
    """What a Marquez takes of the same events; it asks for no key."""
    load = Load(corpus(), path="/api/v1/lineage")
    warm_up(url, "none", load)
    found = measure(url, "none", load, 64, seconds)
    print(f"Marquez, 64 clients        {found}")
    return found


def report_wide(api: Serving, place: Place, seconds: float) -> None:
    """What a tenant notices while another one posts wide events."""
    load, wide = Load(corpus()), Load(wide_events(WIDE_JOBS))
    calm = measure(api.url, place.key, load, 16, seconds)
    beside = Beside(wide, place.other_keys[0], WIDE_CLIENTS)
    busy = measure(api.url, place.key, load, 16, seconds, beside=beside)
    print(f"   16 clients alone        {calm}")
    print(f"   beside {WIDE_CLIENTS} with wide events {busy}")
    print(f"  p99 / alone              {busy.p99_ms / calm.p99_ms:8.2f}   (aim: at most 2)")
    wide_ms = 1000 * sum(beside.times) / max(len(beside.times), 1)
    refused = f", {len(beside.failed)} not 201" if beside.failed else ""
    print(f"   the wide events         {len(beside.times) / seconds:8.1f} events/s   mean {wide_ms:6.0f} ms{refused}")
    with burning():
        burnt = measure(api.url, place.key, load, 16, seconds)
    print(f"   beside a busy processor {burnt}")
    print(
        f"  p99 / alone              {burnt.p99_ms / calm.p99_ms:8.2f}   (what competition for processors alone costs)"
    )


@contextmanager
def burning() -> Iterator[None]:
    """A process that keeps one processor busy, as the merging of wide events and its stores do."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    places = {"embedded": embedded, "servers": servers}
    names = {"embedded": "embedded (SQLite)", "servers": "MySQL + Neo4j"}
    parser = argparse.ArgumentParser(description="What the lineage sink takes.")
    parser.add_argument("places", nargs="*", choices=[*places, []], help="default: both")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rows", type=int, default=1_000_000, help="bulk-loaded; 0 leaves that measurement out")
    parser.add_argument("--marquez", metavar="URL", help="of a Marquez on this machine, to measure it in this run")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors for load generator, API and servers together")
    here = measure_marquez(arguments.marquez, arguments.seconds) if arguments.marquez else MARQUEZ_ELSEWHERE
    for name in arguments.places or places:
        with places[name]() as place:
            report(names[name], place, arguments.seconds, arguments.rows, here)


if __name__ == "__main__":
    main()

"""Whether three processes share one source's limit: 429s (aim: 0), use of what is allowed (aim: 98%), cost of a permit.

Run it as `python -m bench.rate_gate [--seconds 60] [--rate 20] [--burst 5] [--processes 3] [--threads 2] [mysql]`. The
source is a process of its own that enforces the limit by a token bucket and answers 429; source, callers and database
share this machine. Each caller sends through a door of its own, as fast as the gate lets it.
"""

import argparse
import multiprocessing
import socketserver
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import httpx
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import URL, make_url

from platform_defs.http_door.door import Door
from platform_defs.http_door.errors import DoorError
from platform_defs.http_door.policy import Passage
from platform_defs.rate_gate.decisions import Decision
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.store import migrate
from tests.needs import Absent, find

KEY = "bench/source"
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Bucket:
    rate: float
    burst: int
    tokens: float
    at: float
    served: int = 0
    refused: int = 0
    first: float = 0.0
    last: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> bool:
        with self.lock:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
            self.at = now
            if self.tokens < 1:
                self.refused += 1
                return False
            self.tokens -= 1
            self.served += 1
            self.first, self.last = self.first or now, now
            return True


def serve(rate: float, burst: int, told: "Queue[object]", asked: "Queue[None]") -> None:
    """The source: tells its port, and at the end what it counted."""
    bucket = Bucket(rate, burst, burst, time.monotonic())

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline():
                while self.rfile.readline() not in (b"\r\n", b""):
                    pass
                status = b"200 OK" if bucket.take() else b"429 Too Many Requests"
                self.wfile.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told.put(server.server_address[1])
        asked.get()
        told.put((bucket.served, bucket.refused, bucket.last - bucket.first))
        server.shutdown()


class TimedGate(RateGate):
    """Notes how long each booking takes."""

    taken: list[float]

    def acquire(
        self, key: str, policy: RatePolicy, *, cost: int = 1, deadline_s: float = 60.0, task: str = ""
    ) -> Decision:
        began = time.perf_counter()
        try:
            return super().acquire(key, policy, cost=cost, deadline_s=deadline_s, task=task)
        finally:
            self.taken.append(time.perf_counter() - began)


def call(
    url: str, port: int, policy: RatePolicy, seconds: float, threads: int, start: Barrier, told: "Queue[object]"
) -> None:
    """One caller: sends until the time is over and tells what it saw."""
    engine = open_gate_engine(url)
    gate = TimedGate(engine)
    gate.taken = []
    sent, statements, failed = [0] * threads, [0], [0]

    @event.listens_for(engine, "before_cursor_execute")
    def count(connection: object, cursor: object, statement: str, *more: object) -> None:
        # on SQLite these two stay within the process, and a server is not sent them
        statements[0] += statement not in ("BEGIN IMMEDIATE", "COMMIT")

    with Door(gate) as door:
        request = httpx.Request("GET", f"http://127.0.0.1:{port}/works")
        gate.standing(KEY, policy)
        start.wait()
        statements[0] = 0
        end = time.monotonic() + seconds

        def work(number: int) -> None:
            while time.monotonic() < end:
                try:
                    door.send(request, Passage(KEY, policy, task=str(number)))
                    sent[number] += 1
                except DoorError:
                    failed[0] += 1

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    engine.dispose()
    told.put((sum(sent), failed[0], statements[0], gate.taken))


def measure(name: str, url: URL, options: argparse.Namespace) -> None:
    engine = open_gate_engine(url)
    migrate.upgrade(engine)
    RateGate(engine).acquire("bench/warm", RatePolicy())
    engine.dispose()
    policy = RatePolicy(refill_per_s=options.rate, burst=options.burst, prefetch=options.prefetch)
    told, asked, counted = SPAWN.Queue(), SPAWN.Queue(), SPAWN.Queue()
    source = SPAWN.Process(target=serve, args=(options.rate, options.burst, counted, asked))
    source.start()
    port = counted.get()
    start = SPAWN.Barrier(options.processes)
    rendered = url.render_as_string(hide_password=False)
    arguments = (rendered, port, policy, options.seconds, options.threads, start, told)
    callers = [SPAWN.Process(target=call, args=arguments) for _ in range(options.processes)]
    for caller in callers:
        caller.start()
    seen: list[tuple[int, int, int, list[float]]] = [told.get() for _ in callers]  # type: ignore[misc]
    for caller in callers:
        caller.join()
    asked.put(None)
    served, refused, lasted = counted.get()
    source.join()
    sent, failed, statements = (sum(entry[number] for entry in seen) for number in range(3))  # type: ignore[misc]
    taken = sorted(seconds for entry in seen for seconds in entry[3])
    print(
        f"{name}: {options.processes} processes of {options.threads} threads, {lasted:.0f} s,"
        f" {options.rate:g} requests/s, burst {options.burst}"
    )
    print(f"  answered 429                {refused:8d}   (aim: 0)")
    print(f"  use of the allowed rate     {(served - 1) / (lasted * options.rate):8.1%}   (aim: 98%)")
    p50, p99 = statistics.median(taken) * 1000, taken[len(taken) * 99 // 100] * 1000
    print(f"  acquire p50, p99            {p50:8.1f}, {p99:.1f} ms")
    print(f"  statements per request      {statements / max(1, sent):8.2f}")
    if failed:
        print(f"  requests that failed        {failed:8d}")


@contextmanager
def database(store: str) -> Iterator[URL | Absent]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield URL.create("sqlite", database=f"{folder}/bench.db")
        return
    found = find(store)
    if isinstance(found, Absent):
        yield found
        return
    server = make_url(found).set(drivername="mysql+mysqlconnector").update_query_dict({"ssl_disabled": "true"})
    name = f"platform_bench_{uuid.uuid4().hex[:12]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT", connect_args={"collation": "utf8mb4_bin"})
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4"))
    try:
        yield server.set(database=name)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name}"))
        admin.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", default=["mysql"], help="mysql, mariadb, sqlite")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--burst", type=int, default=5)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=1)
    options = parser.parse_args()
    for store in options.stores:
        with database(store) as url:
            if isinstance(url, Absent):
                print(f"{store}: not run, {url.reason}")
            else:
                measure(store, url, options)


if __name__ == "__main__":
    main()

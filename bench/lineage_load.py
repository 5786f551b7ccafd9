"""The load of the lineage benchmarks: real events made unique, and clients that post them and wait for the answer."""

import asyncio
import csv
import json
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from bench.cpu_times import CpuTimes, Used
from tests.needs import require

CLIENTS = (1, 16, 64)
WARM_UP_S = 2.0
# A server that has just started still compiles and fills caches, so the load runs unmeasured until its rate is steady.
STEADY = 0.1
STEADY_AT_MOST = 12
_NUMBERS = count(1)


@dataclass(frozen=True)
class Measured:
    """load_ms: processor time of the load generator itself per event."""

    rate: float
    p50_ms: float
    p99_ms: float
    failed: int
    load_ms: float
    cpu: Used | None = None

    def __str__(self) -> str:
        failed = f", {self.failed} not 201" if self.failed else ""
        return f"{self.rate:8.0f} events/s   p50 {self.p50_ms:6.1f} ms   p99 {self.p99_ms:6.1f} ms{failed}"


class Stream(Protocol):
    def stream(self, host: str, keys: str | Sequence[str]) -> Iterator[bytes]:
        """Requests without an end."""
        ...


@dataclass
class Beside:
    """Load of another tenant that runs beside the measured one. times, failed: of the last measurement."""

    load: Stream
    key: str
    clients: int
    times: list[float] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


def corpus() -> list[dict[str, Any]]:
    """The real RunEvents that a sink has to accept."""
    folder = Path(require("data")) / "openlineage"
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        rows = [row for row in csv.DictReader(index, delimiter="\t") if row["lenient_ok"] == "1"]
    found = [json.loads((folder / row["file"]).read_text(encoding="utf-8")) for row in rows]
    return [event for event in found if isinstance(event, dict) and event.get("run")]


class Clock:
    """Times and run ids that no load has had before, newer than those of the loads before."""

    def __init__(self) -> None:
        number = next(_NUMBERS)
        self.chance = random.Random(number)
        self._time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)

    def time(self) -> str:
        self._time += timedelta(milliseconds=1)
        return self._time.isoformat(timespec="microseconds")

    def run(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128)))


def request(path: str, host: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Load:
    """Every event, shuffled, then every event again in another order, and so on; each of a run of its own."""

    def __init__(
        self, events: Sequence[dict[str, Any]], *, repeating: bool = False, path: str = "/api/openlineage"
    ) -> None:
        self._path = path
        # production repeats itself: few jobs, each with many runs
        self._events = list(events[::10] if repeating else events)
        self._clock = Clock()

    def requests(self, count: int, host: str, keys: str | Sequence[str]) -> list[bytes]:
        """Built before a measurement begins, so that building them is not measured, in the order of their times."""
        return list(islice(self.stream(host, keys), count))

    def stream(self, host: str, keys: str | Sequence[str]) -> Iterator[bytes]:
        """keys: of one tenant, or of several that send in turn."""
        in_turn = cycle([keys] if isinstance(keys, str) else keys)
        while True:
            self._clock.chance.shuffle(self._events)
            for known in self._events:
                event = {**known, "eventTime": self._clock.time(), "run": {**known["run"], "runId": self._clock.run()}}
                yield request(self._path, host, next(in_turn), json.dumps(event).encode())


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The code and the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head[9:12]), await reader.readexactly(length)


Connections = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


async def _client(
    connections: Connections, requests: Iterator[bytes], until: float, times: list[float], failed: list[int]
) -> None:
    """Takes its connections in turn, as behind a balancer that hands out requests in turn."""
    turns = cycle(range(len(connections)))
    while time.perf_counter() < until and (request := next(requests, None)) is not None:
        turn = next(turns)
        reader, writer = connections[turn]
        if reader.at_eof():  # the API closes a connection that nobody has used for some seconds
            connections[turn] = reader, writer = await asyncio.open_connection(*writer.get_extra_info("peername"))
        started = time.perf_counter()
        writer.write(request)
        code, _ = await answered(reader)
        times.append(time.perf_counter() - started)
        if code != 201:
            failed.append(code)


async def _connected(targets: Sequence[tuple[str, int]], clients: int) -> list[Connections]:
    """Of each client a connection to each process, beginning with another one than the client before."""
    in_turn = cycle([[*targets[first:], *targets[:first]] for first in range(len(targets))])
    return [[await asyncio.open_connection(*target) for target in some] for some in islice(in_turn, clients)]


def measure(
    apis: str | Sequence[str],
    key: str | Sequence[str],
    load: Load,
    clients: int,
    seconds: float,
    *,
    warm_up_s: float = WARM_UP_S,
    beside: Beside | None = None,
    cpu: CpuTimes | None = None,
) -> Measured:
    """cpu: counts the processor time of the measured seconds alone."""
    places = [urlsplit(api) for api in ([apis] if isinstance(apis, str) else apis)]
    targets = [(str(place.hostname), int(place.port or 0)) for place in places]
    host = places[0].netloc

    def drive(count: int, seconds: float) -> tuple[list[float], list[int], float, float]:
        requests = iter(load.requests(count, host, key))
        others, other_clients = iter(list[bytes]()), 0
        other_times, other_failed = list[float](), list[int]()
        if beside is not None:
            others, other_clients = beside.load.stream(host, beside.key), beside.clients
            beside.times, beside.failed = other_times, other_failed
        times: list[float] = []
        failed: list[int] = []

        async def main() -> tuple[float, float]:
            mine, theirs = await _connected(targets, clients), await _connected(targets, other_clients)
            if cpu is not None:
                cpu.begin()
            started, processor = time.perf_counter(), time.process_time()
            until = started + seconds
            beside_them = asyncio.gather(*(_client(some, others, until, other_times, other_failed) for some in theirs))
            await asyncio.gather(*(_client(some, requests, until, times, failed) for some in mine))
            took, used = time.perf_counter() - started, time.process_time() - processor
            await beside_them
            for _, writer in (connection for some in (*mine, *theirs) for connection in some):
                writer.close()
            return took, used

        return times, failed, *asyncio.run(main())

    first, _, took, _ = drive(int(1500 * warm_up_s), warm_up_s)
    expected = int(len(first) / took * seconds * 2) + 100
    times, failed, took, processor = drive(expected, seconds)
    used = None if cpu is None else cpu.per_event(len(times))
    times.sort()
    return Measured(
        len(times) / took,
        times[len(times) // 2] * 1000,
        times[int(len(times) * 0.99)] * 1000,
        len(failed),
        processor * 1000 / len(times),
        used,
    )


def warm_up(api: str, key: str, load: Load) -> None:
    """Runs load that is not measured, until two rounds in a row have about the same rate."""
    before = 0.0
    for _ in range(STEADY_AT_MOST):
        rate = measure(api, key, load, max(CLIENTS), WARM_UP_S).rate
        if abs(rate - before) < STEADY * rate:
            return
        before = rate

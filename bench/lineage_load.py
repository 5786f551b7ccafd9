"""The load of the lineage benchmark: real events made unique, wide events, and clients that post them and wait."""

import asyncio
import csv
import json
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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

    def __str__(self) -> str:
        failed = f", {self.failed} not 201" if self.failed else ""
        return f"{self.rate:8.0f} events/s   p50 {self.p50_ms:6.1f} ms   p99 {self.p99_ms:6.1f} ms{failed}"


@dataclass
class Beside:
    """Load of another tenant that runs beside the measured one. times, failed: of the last measurement."""

    load: "Load"
    key: str
    clients: int
    times: list[float] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


def corpus() -> list[dict[str, Any]]:
    folder = Path(require("data")) / "openlineage"
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        rows = [row for row in csv.DictReader(index, delimiter="\t") if row["lenient_ok"] == "1"]
    found = [json.loads((folder / row["file"]).read_text(encoding="utf-8")) for row in rows]
    return [event for event in found if isinstance(event, dict) and event.get("run")]


class Load:
    """Builds requests before the measurement begins, so that building them is not measured."""

    def __init__(
        self, events: Sequence[dict[str, Any]], *, repeating: bool = False, path: str = "/api/openlineage"
    ) -> None:
        self._path = path
        # production repeats itself: few jobs, each with many runs
        self._events = events[::10] if repeating else events
        # every load has events of its own, newer than those of the loads before
        number = next(_NUMBERS)
        self._chance = random.Random(number)
        self._time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)

    def requests(self, count: int, host: str, keys: str | Sequence[str]) -> list[bytes]:
        """The newest comes first, because clients take from the end: events arrive in the order of their times.

        keys: of one tenant, or of several that send in turn.
        """
        in_turn = cycle([keys] if isinstance(keys, str) else keys)
        return [self._request(host, key) for key in islice(in_turn, count)][::-1]

    def _request(self, host: str, key: str) -> bytes:
        self._time += timedelta(milliseconds=1)
        event = dict(self._chance.choice(self._events))
        event["eventTime"] = self._time.isoformat()
        event["run"] = {**event["run"], "runId": str(uuid.UUID(int=self._chance.getrandbits(128)))}
        body = json.dumps(event).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def wide_events(jobs: int, columns: int = 300, inputs: int = 40) -> list[dict[str, Any]]:
    """Jobs whose output has many columns, all of which depend on many inputs by a join or a filter."""
    names = [f"c{number}" for number in range(columns)]
    sources = [{"namespace": "wide", "name": f"s.in{number}", "field": "k"} for number in range(inputs)]
    lineage = {name: {"inputFields": sources[:1]} for name in names}
    schema = {"fields": [{"name": name, "type": "int"} for name in names]}
    return [
        {
            "eventType": "COMPLETE",
            "producer": "bench",
            "run": {},
            "job": {"namespace": "wide", "name": f"job{job}"},
            "inputs": [{"namespace": "wide", "name": source["name"]} for source in sources],
            "outputs": [
                {
                    "namespace": "wide",
                    "name": f"s.out{job}",
                    "facets": {"schema": schema, "columnLineage": {"fields": lineage, "dataset": sources}},
                }
            ],
        }
        for job in range(jobs)
    ]


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


def measure(
    apis: str | Sequence[str],
    key: str | Sequence[str],
    load: Load,
    clients: int,
    seconds: float,
    *,
    warm_up_s: float = WARM_UP_S,
    beside: Beside | None = None,
) -> Measured:
    """Clients take the API processes in turn."""
    places = [urlsplit(api) for api in ([apis] if isinstance(apis, str) else apis)]

    def drive(count: int, seconds: float) -> tuple[list[float], list[int], float, float]:
        requests = load.requests(count, places[0].netloc, key)
        others, other_times, other_failed = list[bytes](), list[float](), list[int]()
        if beside is not None:
            others = beside.load.requests(int(seconds * 200), places[0].netloc, beside.key)
            beside.times, beside.failed = other_times, other_failed
        times: list[float] = []
        failed: list[int] = []

        async def main() -> None:
            until = time.perf_counter() + seconds
            await asyncio.gather(
                *(
                    _client(str(place.hostname), int(place.port or 0), requests, until, times, failed)
                    for place in islice(cycle(places), clients)
                ),
                *(
                    _client(str(place.hostname), int(place.port or 0), others, until, other_times, other_failed)
                    for place in islice(cycle(places), 0 if beside is None else beside.clients)
                ),
            )

        started, processor = time.perf_counter(), time.process_time()
        asyncio.run(main())
        return times, failed, time.perf_counter() - started, time.process_time() - processor

    first, _, took, _ = drive(int(1500 * warm_up_s), warm_up_s)
    expected = int(len(first) / took * seconds * 2) + 100
    times, failed, took, processor = drive(expected, seconds)
    times.sort()
    return Measured(
        len(times) / took,
        times[len(times) // 2] * 1000,
        times[int(len(times) * 0.99)] * 1000,
        len(failed),
        processor * 1000 / len(times),
    )


def count_refused(api: str, key: str, load: Load, clients: int, seconds: float) -> tuple[int, int]:
    """Posts without any warm-up; returns how many requests were answered, and how many of them were not accepted."""
    place = urlsplit(api)
    requests = load.requests(int(seconds * 1000), place.netloc, key)
    times: list[float] = []
    failed: list[int] = []

    async def main() -> None:
        until = time.perf_counter() + seconds
        target = (str(place.hostname), int(place.port or 0))
        await asyncio.gather(*(_client(*target, requests, until, times, failed) for _ in range(clients)))

    asyncio.run(main())
    return len(times), len(failed)


def warm_up(api: str, key: str, load: Load) -> None:
    """Runs load that is not measured, until two rounds in a row have about the same rate."""
    before = 0.0
    for _ in range(STEADY_AT_MOST):
        rate = measure(api, key, load, max(CLIENTS), WARM_UP_S).rate
        if abs(rate - before) < STEADY * rate:
            return
        before = rate

"""Whether lineage events hold up runs: launches of the UI without events, and beside exactly 100 events a second.

Run `python -m bench.lineage_beside_runs`; it starts an embedded platform of its own. With `--servers` that platform is
on the MySQL and the Neo4j that PLATFORM_TEST_MYSQL_URL and PLATFORM_TEST_NEO4J_URL name. Everything runs on one
machine, also the senders. Events are sent at their times whether earlier ones were answered or not.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.conftest import dropped_databases, new_database
from tests.e2e.conftest import server_environment
from tests.e2e.platform_up import PlatformUp
from tests.lineage_events import run_event

RATE = 100
SECONDS = 60
JOB = "selfcheck"
ENDED = ("SUCCESS", "FAILURE", "CANCELED")


class Sender(threading.Thread):
    """Sends 100 events a second for a minute, of jobs that change what they read and write all the time."""

    def __init__(self, up: PlatformUp) -> None:
        super().__init__(daemon=True)
        self._url, self._key = f"{up.up['api']}/api/openlineage", up.key
        self.answers: Counter[str] = Counter()
        self.took: list[float] = []
        self.late = 0.0
        self.sent_for = 0.0

    def run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        headers = {"Authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits, headers=headers) as client:
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for number in range(RATE * SECONDS):
                    due = began + number / RATE
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    self.late = max(self.late, time.perf_counter() - due)
                    group.create_task(self._post(client, number))
                self.sent_for = time.perf_counter() - began

    async def _post(self, client: httpx.AsyncClient, number: int) -> None:
        event = run_event(
            job=f"job{number % 20}",
            time=f"2026-03-01T{10 + number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
            reads=(f"raw.t{number % 37}",),
            writes=(f"mart.t{number % 41}",),
        )
        began = time.perf_counter()
        try:
            answer = str((await client.post(self._url, json=event)).status_code)
        except httpx.HTTPError as error:
            answer = type(error).__name__
        self.took.append(time.perf_counter() - began)
        self.answers[answer] += 1


def launches(up: PlatformUp, until: float) -> tuple[list[float], Counter[str]]:
    """Launches one run after the other; the seconds from each launch to the start of its run, and how they ended."""
    waits, ends = list[float](), Counter[str]()
    while time.perf_counter() < until:
        asked = time.time()
        run = up.until_status(up.launch(JOB), *ENDED)
        waits.append(run["startTime"] - asked)
        ends[run["status"]] += 1
    return waits, ends


def show(name: str, waits: list[float], ends: Counter[str]) -> None:
    ordered = sorted(waits)
    print(
        f"{name:<24} {len(waits):4d} runs {dict(ends)}   launch to start: median {statistics.median(ordered):6.2f} s"
        f"   p90 {ordered[int(0.9 * (len(ordered) - 1))]:6.2f} s   worst {ordered[-1]:6.2f} s"
    )


@contextmanager
def started(servers: bool) -> Iterator[PlatformUp]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url, names = new_database("mysql", folder) if servers else (None, [])
        up = PlatformUp(folder / "home", server_environment(url) if url is not None else None)
        try:
            yield up.until_ready()
        finally:
            up.end()
            dropped_databases("mysql", names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", action="store_true", help="on MySQL and Neo4j")
    with started(parser.parse_args().servers) as up:
        launches(up, time.perf_counter() + 5)  # the first runs of a platform are slower
        show("without events", *launches(up, time.perf_counter() + SECONDS))
        sender = Sender(up)
        sender.start()
        beside = launches(up, time.perf_counter() + SECONDS)
        sender.join()
        show(f"beside {RATE} events/s", *beside)
        took, count = sorted(sender.took), RATE * SECONDS
        print(
            f"{count} events in {sender.sent_for:.1f} s ({count / sender.sent_for:.1f}/s), none later than"
            f" {1000 * sender.late:.0f} ms after its time; answers {dict(sender.answers)};"
            f" p50 {1000 * statistics.median(took):.0f} ms, p99 {1000 * took[int(0.99 * (len(took) - 1))]:.0f} ms"
        )
        show("afterwards", *launches(up, time.perf_counter() + SECONDS / 2))


if __name__ == "__main__":
    main()

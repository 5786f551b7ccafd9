"""Whether lineage events hold up runs: launches of the UI without events, and beside exactly 100 events a second.

Run `python -m bench.lineage_beside_runs`; it starts an embedded platform of its own. With `--servers` that platform is
on the MySQL and the Neo4j that PLATFORM_TEST_MYSQL_URL and PLATFORM_TEST_NEO4J_URL name. Everything runs on one
machine, also the senders. Events are sent at their times whether earlier ones were answered or not.
"""

import argparse
import asyncio
import os
import re
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.lineage_load import Load, corpus
from platform_defs.supervisor.guard import descendants
from tests.conftest import dropped_databases, new_database
from tests.e2e.conftest import server_environment
from tests.e2e.platform_up import PlatformUp

RATE = 100
SECONDS = 60
JOB = "selfcheck"
ENDED = ("SUCCESS", "FAILURE", "CANCELED")


class Sender(threading.Thread):
    """Sends 100 real events a second for a minute, each of a run of its own."""

    def __init__(self, up: PlatformUp) -> None:
        super().__init__(daemon=True)
        place = urlsplit(up.up["api"])
        self._host, self._port = str(place.hostname), place.port
        self._requests = Load(corpus()).requests(RATE * SECONDS, place.netloc, up.key)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.answers: Counter[str] = Counter()
        self.took: list[float] = []
        self.late = 0.0
        self.sent_for = 0.0

    def run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, request in enumerate(self._requests):
                due = began + number / RATE
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                self.late = max(self.late, time.perf_counter() - due)
                group.create_task(self._post(request))
            self.sent_for = time.perf_counter() - began
        for _, writer in self._idle:
            writer.close()

    async def _post(self, request: bytes) -> None:
        began = time.perf_counter()
        # the API closes connections that were idle for some seconds
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            [length] = re.findall(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length))
        except (OSError, EOFError) as error:
            answer = type(error).__name__
        else:
            answer = head[9:12].decode()
            self._idle.append((reader, writer))
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


def cpu_seconds(up: PlatformUp) -> Counter[str]:
    """Processor time of the platform's processes and of all that they started."""
    return Counter(
        {name: sum(map(_cpu_s, [pid, *descendants(pid)])) for name, pid in up.up["pids"].items()}
        | {"bench": time.process_time()}
    )


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # with that of its children which have ended
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


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
        sender, before = Sender(up), cpu_seconds(up)
        sender.start()
        beside = launches(up, time.perf_counter() + SECONDS)
        sender.join()
        used = cpu_seconds(up) - before
        show(f"beside {RATE} events/s", *beside)
        took, count = sorted(sender.took), RATE * SECONDS
        print(
            f"{count} events in {sender.sent_for:.1f} s ({count / sender.sent_for:.1f}/s), none later than"
            f" {1000 * sender.late:.0f} ms after its time; answers {dict(sender.answers)};"
            f" p50 {1000 * statistics.median(took):.0f} ms, p99 {1000 * took[int(0.99 * (len(took) - 1))]:.0f} ms"
        )
        print("processor seconds meanwhile:", {name: round(seconds, 1) for name, seconds in used.most_common()})
        show("afterwards", *launches(up, time.perf_counter() + SECONDS / 2))


if __name__ == "__main__":
    main()

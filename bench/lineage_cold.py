"""What clients see of a cold start: MySQL, Neo4j and API start anew, and 64 clients post from the first moment.

Run it as `python -m bench.lineage_cold [--seconds 15]` after `make services`, whose programs it starts in a folder of
its own. The API is started at once with its servers, and again whenever it ends because they do not answer yet, as a
supervisor would do. Clients post until some seconds after /readyz has become ready. A connection that is refused says
that nobody listens; an answer 503 says that the API does, and does not take the event: before /readyz is ready, because
servers are still starting or Neo4j is being warmed up. Aim: no 503 from then on.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.cpu_times import Neighbours
from bench.lineage_aims import NO_503
from bench.lineage_load import Load, answered, corpus
from bench.lineage_places import servers as place_on_servers
from tests.e2e.serving import ROOT, SERVE
from tests.own_servers import own_servers
from tests.waiting import until

CLIENTS = 64
START_S = 600
# Stock clients give up after so many seconds.
PATIENCE_S = 5.0
# A client to whom nobody listens asks again so soon: without a pause 64 of them would take the processors of the start.
PAUSE_S = 0.2
NOBODY_LISTENS, CUT_OFF, NO_ANSWER = "connection refused", "cut off by the end of a process", "no answer within 5 s"


def wait_until_ready(url: str) -> None:
    until("/readyz to be ready", lambda: is_ready(url), START_S)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@dataclass
class Seen:
    """What clients got, before /readyz was ready and after. first: seconds from the start to each kind of answer."""

    began: float = field(default_factory=time.monotonic)
    ready_after: float | None = None
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)

    def now(self) -> float:
        return time.monotonic() - self.began

    def add(self, what: str) -> None:
        self.first.setdefault(what, self.now())
        (self.before if self.ready_after is None else self.after)[what] += 1

    def print(self) -> None:
        print(f"  ready after              {self.ready_after:8.1f} s")
        for name, counted in (("before that", self.before), ("after that", self.after)):
            print(f"  {CLIENTS} clients, {name}: {counted.total()} requests")
            for what, number in counted.most_common():
                print(f"    {number:8} {what}   (the first one {self.first[what]:.1f} s after the start)")
        refused = sum(number for what, number in self.after.items() if what.startswith("503"))
        print(NO_503.line("answers 503 since it is ready", refused))


async def client(port: int, requests: Iterator[bytes], seen: Seen, over: threading.Event) -> None:
    """Posts one event after the other, over one connection as long as that lasts."""
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while not over.is_set():
        try:
            reader, writer = connection = connection or await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            seen.add(NOBODY_LISTENS)
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            writer.write(next(requests))
            code, body = await asyncio.wait_for(answered(reader), PATIENCE_S)
            seen.add(str(code) if code == 201 else f"{code} {body.decode(errors='replace')[:200]}")
            continue
        except TimeoutError:
            seen.add(NO_ANSWER)
        except (OSError, EOFError):
            seen.add(CUT_OFF)
        writer.close()
        connection = None
    if connection is not None:
        connection[1].close()


@contextmanager
def started_again_and_again(env: dict[str, str], port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`platform serve`, started again whenever it ends; what is given are all its processes so far."""
    command = [sys.executable, "-c", SERVE, "serve", "--port", str(port)]
    processes: list[subprocess.Popen[bytes]] = []
    over = threading.Event()

    def keep(log: Path) -> None:
        with log.open("wb") as output:
            while not over.is_set():
                processes.append(subprocess.Popen(command, cwd=ROOT, env=env, stderr=output))
                processes[-1].wait()

    with tempfile.TemporaryDirectory() as folder:
        keeper = threading.Thread(target=keep, args=(Path(folder, "serve.log"),))
        keeper.start()
        try:
            yield processes
        finally:
            over.set()
            while keeper.is_alive():  # the keeper may just have begun another process
                for process in processes:
                    process.terminate()
                keeper.join(1)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def report(seconds: float) -> None:
    with own_servers() as servers:
        os.environ["PLATFORM_TEST_MYSQL_URL"] = servers.url("mysql")
        os.environ["PLATFORM_TEST_NEO4J_URL"] = servers.url("neo4j")
        with place_on_servers() as place:
            servers.stop()
            port, over, neighbours, seen = free_port(), threading.Event(), Neighbours(), Seen()

            def start() -> None:
                try:
                    servers.start()
                    print(f"  servers answer after     {seen.now():8.1f} s")
                    wait_until_ready(f"http://127.0.0.1:{port}")
                    seen.ready_after = seen.now()
                    time.sleep(seconds)
                finally:
                    over.set()

            async def load() -> None:
                requests = Load(corpus()).stream(f"127.0.0.1:{port}", place.key)
                starting = asyncio.create_task(asyncio.to_thread(start))
                await asyncio.gather(*(client(port, requests, seen, over) for _ in range(CLIENTS)))
                await starting

            with started_again_and_again(place.env, port) as processes:
                asyncio.run(load())
                print(f"  the API was started      {len(processes):8} times")
            seen.print()
            print(f"  {neighbours.shown()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What clients see of a cold start.")
    parser.add_argument("--seconds", type=float, default=15.0, help="of the load after /readyz is ready")
    report(parser.parse_args().seconds)


if __name__ == "__main__":
    main()

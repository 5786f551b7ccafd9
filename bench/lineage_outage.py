"""What clients see of an outage: stores are stopped and started under 64 clients that send again without a pause.

Run it as `python -m bench.lineage_outage [--away neo4j mysql] [--seconds 5]` after `make services`, whose programs it
starts in a folder of its own. Such clients ignore Retry-After; what matters is how soon after the return of the stores
events are taken again, and what a refusal costs meanwhile.
"""

import argparse
import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.cpu_times import CpuTimes
from bench.lineage_cold import CLIENTS, wait_until_ready
from bench.lineage_load import Load, answered, corpus
from bench.lineage_places import servers as place_on_servers
from bench.lineage_places import serving
from tests.own_servers import PORTS, OwnServers, own_servers
from tests.waiting import until

BEFORE_S, AFTER_S = 5.0, 5.0
# how long to wait until events are taken again
PATIENCE_S = 300.0
REQUESTS = 30_000


@dataclass
class Seen:
    """Answers by the second since the load began, and by their code and text."""

    began: float = field(default_factory=time.monotonic)
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def now(self) -> float:
        return time.monotonic() - self.began

    def is_accepted(self, code: int, body: bytes) -> bool:
        at = self.now()
        (self.accepted if code == 201 else self.refused).append(at)
        self.answers[int(at), "201" if code == 201 else f"{code} {body.decode()}"] += 1
        return code == 201


async def client_without_pauses(api: str, requests: Iterator[bytes], seen: Seen, over: threading.Event) -> None:
    """Sends each request until it is accepted."""
    place = urlsplit(api)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    request = next(requests)
    while not over.is_set():
        writer.write(request)
        if seen.is_accepted(*await answered(reader)):
            request = next(requests)
    writer.close()
    await writer.wait_closed()


def report(servers: OwnServers, away: Sequence[str], seconds: float, *, timeline: bool) -> None:
    with place_on_servers() as place, serving(place.env) as api:
        wait_until_ready(api.url)
        requests = iter(Load(corpus()).requests(REQUESTS, urlsplit(api.url).netloc, place.key))
        seen, over = Seen(), threading.Event()

        def interrupt() -> None:
            try:
                time.sleep(BEFORE_S)
                processor, stopped = CpuTimes([api], {}), seen.now()
                servers.stop(*away)
                time.sleep(seconds)
                servers.start()
                back = seen.now()
                refused = sum(at > stopped for at in seen.refused)
                print(f"\n  {' and '.join(away)} away for    {back - stopped:8.1f} s")
                print(f"  refusals meanwhile       {refused:8}   {processor.per_event(refused)}")
                until("events to be taken", lambda: any(at > back for at in seen.accepted), PATIENCE_S)
                time.sleep(AFTER_S)
                print(f"  first event taken        {min(at for at in seen.accepted if at > back) - back:8.1f} s later")
                print(f"  last refusal             {max(seen.refused, default=back) - back:8.1f} s later")
            finally:
                over.set()

        async def load() -> None:
            interruption = asyncio.create_task(asyncio.to_thread(interrupt))
            await asyncio.gather(*(client_without_pauses(api.url, requests, seen, over) for _ in range(CLIENTS)))
            await interruption

        asyncio.run(load())
        if timeline:
            for (second, answer), count in sorted(seen.answers.items()):
                print(f"  {second:4} s {count:6} {answer}")
            lines = api.log.read_text().splitlines()
            print(*(line for line in lines if "platform_defs.api.access" not in line), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="What clients that never pause see of an outage.")
    parser.add_argument("--away", nargs="+", choices=sorted(PORTS), default=["neo4j"])
    parser.add_argument("--seconds", type=float, default=5.0, help="between stop and start")
    parser.add_argument("--timeline", action="store_true", help="print the answers of each second, and the log")
    arguments = parser.parse_args()
    with own_servers() as servers:
        os.environ["PLATFORM_TEST_MYSQL_URL"] = servers.url("mysql")
        os.environ["PLATFORM_TEST_NEO4J_URL"] = servers.url("neo4j")
        report(servers, arguments.away, arguments.seconds, timeline=arguments.timeline)


if __name__ == "__main__":
    main()

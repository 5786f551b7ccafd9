"""What clients see of a cold start: MySQL, Neo4j and API start anew, and 64 clients post as soon as /readyz is ready.

Run it as `python -m bench.lineage_cold [--seconds 15]` after `make services`, whose programs it starts in a folder of
its own. Aim: no 503.
"""

import argparse
import os
import time

import httpx

from bench.lineage import servers as place_on_servers
from bench.lineage import serving
from bench.lineage_load import Load, corpus, count_refused
from tests.own_servers import own_servers
from tests.waiting import until

CLIENTS = 64
START_S = 600


def wait_until_ready(url: str) -> None:
    until("/readyz to be ready", lambda: httpx.get(f"{url}/readyz", trust_env=False).status_code == 200, START_S)


def report(seconds: float) -> None:
    with own_servers() as servers:
        os.environ["PLATFORM_TEST_MYSQL_URL"] = servers.url("mysql")
        os.environ["PLATFORM_TEST_NEO4J_URL"] = servers.url("neo4j")
        with place_on_servers() as place:
            servers.stop()
            began = time.monotonic()
            servers.start()
            print(f"  servers answer after     {time.monotonic() - began:8.1f} s")
            load = Load(corpus())
            with serving(place.env) as api:
                wait_until_ready(api.url)
                print(f"  ready after              {time.monotonic() - began:8.1f} s")
                answered, refused = count_refused(api.url, place.key, load, CLIENTS, seconds)
                print(f"  {CLIENTS} clients, {seconds:g} s         {answered:8} answers, {refused} not 201   (aim: 0)")


def main() -> None:
    parser = argparse.ArgumentParser(description="What clients see of a cold start.")
    parser.add_argument("--seconds", type=float, default=15.0, help="of the load after the start")
    report(parser.parse_args().seconds)


if __name__ == "__main__":
    main()

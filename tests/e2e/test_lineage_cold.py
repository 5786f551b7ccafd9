"""Servers that have just started: nothing is refused once the process is ready, and a restart under load is no loss."""

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from tests.e2e.conftest import UNHURRIED
from tests.e2e.serving import Serving
from tests.e2e.test_lineage import EVENTS, Sent, clean_run, host, load, place, send_all
from tests.lineage.test_corpus_parsing import corpus
from tests.own_servers import OwnServers, own_servers
from tests.waiting import until

pytestmark = pytest.mark.needs("server programs", "data", "time")
CLIENTS = 64
START_S = 600


@pytest.fixture(scope="module")
def servers() -> Iterator[OwnServers]:
    with own_servers() as running:
        yield running


@pytest.fixture
def database(servers: OwnServers) -> URL:
    name = f"platform_test_{uuid.uuid4().hex[:12]}"
    server = make_url(servers.url("mysql")).set(drivername="mysql+mysqlconnector", database=None)
    server = server.update_query_dict({"ssl_disabled": "true"})
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"))
    engine.dispose()
    return server.set(database=name)


def real_events(count: int) -> list[dict[str, Any]]:
    """Events of real clients, as of runs that nobody has seen before."""
    chance, start = random.Random(7), datetime(2026, 3, 1, tzinfo=UTC)
    known = [event for row, event in corpus() if row["lenient_ok"] == "1" and event.get("run")]
    return [
        event
        | {
            "eventTime": (start + timedelta(seconds=number)).isoformat(),
            "run": {**event["run"], "runId": str(uuid.UUID(int=chance.getrandbits(128)))},
        }
        for number, event in enumerate(chance.choices(known, k=count))
    ]


def wait_until_ready(url: str) -> None:
    until("the process to be ready", lambda: httpx.get(f"{url}/readyz", trust_env=False).status_code == 200, START_S)


def test_everything_started_cold_refuses_nothing_once_it_is_ready(
    servers: OwnServers, database: URL, tmp_path: Path
) -> None:
    # within which time it answers is shown by bench/lineage_cold.py
    with host(database, tmp_path, servers.url("neo4j"), seen_as=UNHURRIED) as own, place(own) as sink:
        own.process.stop()
        own.engine.dispose()
        servers.stop()
        servers.start()
        own.process = Serving(own.environment | UNHURRIED, tmp_path)
        wait_until_ready(sink.url)
        sent = send_all(lambda: sink.url, sink.key, real_events(10 * CLIENTS), {}, clients=CLIENTS, patience_s=START_S)
        assert (sent.accepted, sent.refused) == (10 * CLIENTS, 0)


def test_a_neo4j_that_is_restarted_under_load_is_found_again_and_lacks_nothing(
    servers: OwnServers, database: URL, tmp_path: Path
) -> None:
    events = load()
    ready: list[int] = []

    def restart(sent: Sent) -> None:
        servers.stop("neo4j")
        until("clients to be refused", lambda: sent.refused >= CLIENTS, START_S)
        ready.append(httpx.get(f"{sink.url}/readyz", trust_env=False, timeout=30).status_code)
        servers.start()

    with host(database, tmp_path, servers.url("neo4j"), seen_as=UNHURRIED) as own, place(own) as sink:
        wait_until_ready(sink.url)
        sent = send_all(lambda: sink.url, sink.key, events, {300: restart}, clients=CLIENTS, patience_s=START_S)
        assert (sent.accepted, ready) == (EVENTS, [503])
        wait_until_ready(sink.url)
        assert sink.rows() == EVENTS
        sink.recover()
        assert sink.lines() == clean_run(tmp_path, sink.tenant, events)

"""Servers that have just started: nothing is refused once the process is ready, and a restart under load is no loss."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from tests import loopback
from tests.e2e.conftest import UNHURRIED
from tests.e2e.test_lineage import EVENTS, Place, Sent, clean_run, host, load, place, send_all
from tests.lineage.test_corpus_parsing import real_events
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


def wait_until_ready(url: str) -> None:
    until("the process to be ready", lambda: loopback.get(f"{url}/readyz").status_code == 200, START_S)


def refused_at_once(log: str) -> int:
    """How many events were refused without being held for the return of the store, by the access log."""
    lines = [json.loads(line) for line in log.splitlines() if "POST /api/openlineage 503" in line]
    return sum("held" not in line for line in lines)


def test_servers_that_have_just_started_refuse_nothing_and_a_restart_under_load_loses_nothing(
    servers: OwnServers, database: URL, tmp_path: Path
) -> None:
    """How soon events are taken after such a start is shown by bench/lineage_cold.py and bench/lineage_outage.py.

    A busy machine would miss the deadline of production for reasons of its own, so requests have a minute here. A first
    group that is too slow for 4 seconds is therefore not seen here. What makes it slow is that Neo4j plans statements
    which it gets for the first time. That needs no clock: tests/lineage/test_warm_up.py shows that real events send no
    statement which the warm-up has not sent before, and that the process is not ready earlier; here a cold server is
    warmed up before it gets the first event. What happens while one of the two is away is tested in test_lineage.py.
    """
    events = load()
    ready: list[tuple[int, str]] = []

    def restart(sent: Sent) -> None:
        servers.stop("mysql", "neo4j")
        until("clients to be refused", lambda: sent.refused >= CLIENTS, START_S)
        answer = loopback.get(f"{sink.url}/readyz")
        ready.append((answer.status_code, answer.json()["error"]))
        servers.start()

    def send(sink: Place, events: list[dict[str, Any]], at: dict[int, Callable[[Sent], None]]) -> Sent:
        return send_all(lambda: sink.url, sink.key, events, at, clients=CLIENTS, pauses=False, patience_s=START_S)

    with host(database, tmp_path, servers.url("neo4j"), seen_as=UNHURRIED) as own:
        wait_until_ready(own.process.url)
        with place(own) as others:
            sent = send(others, real_events(10 * CLIENTS), {})
            assert (sent.accepted, sent.refused) == (10 * CLIENTS, 0)
            log = own.process.log.read_text()
            assert log.index("the graph is warm after") < log.index("POST /api/openlineage 201")
        with place(own) as sink:
            sent = send(sink, events, {EVENTS // 2: restart})
            assert sent.accepted == EVENTS
            [(code, error)] = ready
            assert code == 503
            assert "database: does not answer" in error
            wait_until_ready(sink.url)
            log = own.process.log.read_text()
            # at the start, and after the outage
            assert log.count("the graph is warm after") == 2
            # Only those that waited when the stores were lost. If clients that never pause were refused as fast as they
            # ask, neither the store that starts nor its warm-up would get a processor.
            assert refused_at_once(log) <= 4 * CLIENTS
            assert sink.rows() == EVENTS
            sink.recover()
            assert sink.lines() == clean_run(tmp_path, sink.tenant, events)

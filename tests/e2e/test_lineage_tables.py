"""Real lineage events on a running platform: the Dagster UI draws their tables, and goes on launching runs."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from platform_defs.dagster_instance import LOCATION
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.supervisor.child import Broken, NotReady
from platform_defs.supervisor.probes import webserver_probe
from tests.e2e.conftest import UNHURRIED
from tests.e2e.platform_up import PlatformUp
from tests.lineage.test_corpus_parsing import corpus, lacks
from tests.lineage_events import run_event
from tests.waiting import PATIENCE_S, until

RATE, MINUTE_S, RUNS = 100, 60, 4
# longer than the runs are waited for
LONGEST_S = 600
ASSETS = """{ assetNodes { assetKey { path } dependencyKeys { path }
  metadataEntries { label } } }"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformUp]:
    up = PlatformUp(tmp_path_factory.mktemp("tables") / "home", UNHURRIED)
    try:
        yield up.until_ready()
    finally:
        up.end()


@pytest.fixture
def client(running: PlatformUp) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {running.key}"}
    with httpx.Client(base_url=running.up["api"], headers=headers, timeout=PATIENCE_S, trust_env=False) as opened:
        yield opened


def tables(running: PlatformUp) -> list[dict[str, Any]]:
    """The assets of lineage. Fails at once if the code location does not load, and waits while it is being loaded."""
    try:
        webserver_probe(running.up["ui"], LOCATION)(0.0)
    except NotReady:
        return []
    except Broken as error:
        pytest.fail(str(error))
    return [node for node in running.graphql(ASSETS)["assetNodes"] if node["assetKey"]["path"][0] == "lineage"]


@pytest.mark.needs("data")
def test_all_real_events_posted_the_code_location_loads_and_draws_their_tables(
    running: PlatformUp, client: httpx.Client
) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda raw: client.post("/api/openlineage", json=raw), [raw for _, raw in corpus()]))
    expected = [400 if lacks(raw) else 201 for _, raw in corpus()]
    assert [answer.status_code for answer in answers] == expected
    drawn = until("the tables to be drawn", lambda: found if len(found := tables(running)) > 200 else None) or []
    assert any(node["dependencyKeys"] for node in drawn)
    assert any("not drawn" in entry["label"] for node in drawn for entry in node["metadataEntries"]), "cycles are named"
    run_id = running.launch("selfcheck")
    assert running.until_status(run_id, "SUCCESS", "FAILURE", "CANCELED")["status"] == "SUCCESS"


def stored_events(running: PlatformUp) -> int:
    engine = open_engine(f"sqlite:///{running.home}/platform.db")
    with engine.connect() as connection:
        count = connection.scalar(select(func.count()).select_from(lineage_events)) or 0
    engine.dispose()
    return count


class Load(threading.Thread):
    """A hundred events a second, as far as the machine can, from a few jobs that change their tables all the time."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(daemon=True)
        self.answers: Counter[int] = Counter()
        self._client = client
        self._ended = threading.Event()

    def run(self) -> None:
        began = time.monotonic()

        def post(number: int) -> None:
            if self._ended.wait(max(0.0, began + number / RATE - time.monotonic())):
                return
            names = {"reads": (f"raw.t{number % 37}",), "writes": (f"mart.t{number % 41}",)}
            event = run_event(job=f"job{number % 20}", time=f"2026-03-01T10:{number // 60 % 60:02d}:00Z", **names)
            self.answers[self._client.post("/api/openlineage", json=event).status_code] += 1

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(post, range(RATE * LONGEST_S)))

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.mark.needs("time")
def test_every_run_launched_in_the_ui_succeeds_while_events_are_sent_for_a_minute(
    running: PlatformUp, client: httpx.Client
) -> None:
    """Up to a hundred a second are sent. How many the platform takes, and how long runs take beside them, is measured
    by bench/lineage_beside_runs.py.
    """
    load, began, statuses, before = Load(client), time.monotonic(), list[str](), stored_events(running)
    load.start()
    # a busy machine executes few runs in a minute; the events go on until it has executed some
    while time.monotonic() < began + MINUTE_S or len(statuses) < RUNS:
        run_id = running.launch("selfcheck")
        statuses.append(running.until_status(run_id, "SUCCESS", "FAILURE", "CANCELED")["status"])
    assert load.is_alive(), "every run ended while events were sent"
    load.end()
    assert set(statuses) == {"SUCCESS"}
    # 503 is how the sink asks a sender to wait, where the machine is too slow for so many
    assert set(load.answers) <= {201, 503}
    assert load.answers[201] > 0, "events were taken meanwhile"
    assert stored_events(running) >= before + load.answers[201], "what was acknowledged is stored"
    assert until("the tables to be drawn", lambda: tables(running))

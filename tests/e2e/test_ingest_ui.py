"""Ingest as a person sees it: windows that harvest themselves, one fetched again, a backfill with a failing window."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import text, update

from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file as read_models
from platform_defs.demo_source.server import DemoSettings, open_server
from platform_defs.http_door.policy import LONGEST_TIMEOUT_S
from platform_defs.ingest.registry.file import read_file
from platform_defs.ingest.registry.loading import load
from platform_defs.ingest.registry.presets import read_preset
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_record
from tests import loopback
from tests.arrivals.world import logged_tasks
from tests.e2e.chromium import opened_page, picture, shows
from tests.e2e.tree import copy_with_probes
from tests.e2e.warm import Warm
from tests.waiting import until

pytestmark = pytest.mark.needs("chromium")
CODE, ENDPOINT = "demo_crossref", "works"
# as the preset says
BUCKETS = 16
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
MODEL = """
models:
  - model_id: BESIDE-01
    name: Beside ingest
    depends_on: [BESIDE]
    source: platform
    sql: SELECT ${kpis} FROM BESIDE WHERE op_time = ${op_time}
    kpis: [{kpi_id: BESIDE1, name: Amount, expression: COUNT(amount)}]
"""
DAYS = [f"{TODAY - timedelta(days=number):%Y-%m-%d}" for number in (4, 3, 2, 1)]


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    server, url = open_server(DemoSettings(records=3000))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield url
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """With two slots, one of them for ingest: whatever it does, others find a slot."""
    folder = tmp_path_factory.mktemp("ingest")
    platform = Warm(folder / "home", copy_with_probes(folder / "tree"), {"PLATFORM_RUNNER_SLOTS": "2"})
    try:
        yield platform.until_ready()
    finally:
        platform.end()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_page() as page:
        yield page


def with_the_longest_timeouts(preset: bytes) -> bytes:
    """A request that the source holds back must not be given up before the test lets it go."""
    longest = f"{LONGEST_TIMEOUT_S:g}s"
    place = b"      retry_after_cap: 10m\n"
    assert preset.count(place) == 1, "the preset no longer has the place for timeouts that this test expects"
    return preset.replace(place, place + f"      read_timeout: {longest}\n      total_timeout: {longest}\n".encode())


def key(operation: str) -> dict[str, list[str]]:
    return {"path": ["ingest", CODE, ENDPOINT, operation]}


def partitions(up: Warm, operation: str) -> dict[str, int]:
    """How many partitions of the asset are in which state."""
    query = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
                 partitionStats { numMaterialized numFailed numMaterializing } } } }"""
    found = up.graphql(query, key=key(operation))["assetNodeOrError"].get("partitionStats")
    return found or {"numMaterialized": 0, "numFailed": 0, "numMaterializing": 0}


def launch(up: Warm, operation: str, partition: str) -> str:
    return up.launch(
        "__ASSET_JOB",
        selector={
            "repositoryName": "__repository__",
            "repositoryLocationName": "platform",
            "jobName": "__ASSET_JOB",
            "assetSelection": [key(operation)],
        },
        executionMetadata={"tags": [{"key": "dagster/partition", "value": partition}]},
    )


def requests_of(source: str, which: str = "total") -> int:
    """How many requests the source has seen, or is holding back."""
    answer: dict[str, Any] = loopback.get(f"{source}/_requests").json()
    return int(answer[which])


def control(source: str, **what: Any) -> None:
    loopback.post(f"{source}/_control", json=what).raise_for_status()


def test_a_source_harvests_itself_a_window_is_fetched_again_and_a_failing_window_is_seen(
    up: Warm, source: str, page: Page, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    file = read_file(with_the_longest_timeouts(read_preset("crossref")), "preset:crossref")
    # without a lag the same windows are due at every hour of the day
    start, lag = TODAY - timedelta(days=4), timedelta(0)
    load(up.engine, file.with_changes(code=CODE, base_url=source, start=start, safety_lag=lag), now=now)
    until("the planner to harvest four days", lambda: partitions(up, "harvest")["numMaterialized"] == 4)
    ui = str(up.up["ui"])
    page.goto(f"{ui}/assets/ingest/{CODE}/{ENDPOINT}/harvest?view=partitions")
    expect(page.get_by_text("Materialized (4)")).to_be_visible()
    picture(page, tmp_path, "ingest-harvest")
    _fetches_again(up, source, page, tmp_path)
    _shows_a_failing_window(up, source, page, tmp_path)
    _updates_a_bucket(up, page, tmp_path)


def _fetches_again(up: Warm, source: str, page: Page, folder: Path) -> None:
    before = requests_of(source)
    run = up.until_status(launch(up, "harvest", DAYS[0]), "SUCCESS", "FAILURE")
    assert run["status"] == "SUCCESS"
    [made] = run["assetMaterializations"]
    shown = {entry["label"]: entry.get("text") or entry.get("intValue") for entry in made["metadataEntries"]}
    assert shown["plan"].endswith(":g2")
    assert shown["records unchanged"] > 0
    assert requests_of(source) > before
    page.goto(f"{up.up['ui']}/assets/ingest/{CODE}/{ENDPOINT}/harvest?view=partitions&partition={DAYS[0]}")
    expect(page.get_by_text("View all historical events (2)")).to_be_visible()
    expect(page.get_by_text(shown["plan"])).to_be_visible()
    picture(page, folder, "ingest-twice")


def _shows_a_failing_window(up: Warm, source: str, page: Page, folder: Path) -> None:
    bad_window = {"kind": "bad_id", "times": 1000, "id": DAYS[1]}
    control(source, trouble=[bad_window, {"kind": "hold", "times": 1000}])
    up.graphql(
        """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
             __typename } }""",
        params={"assetSelection": [key("backfill")], "partitionNames": DAYS},
    )
    until("the backfill to hold ingest's slot", lambda: requests_of(source, "held") > 0)
    # it must wait for that slot, and not take the other one
    second = launch(up, "harvest", DAYS[3])
    _others_finish_first(up)
    assert partitions(up, "backfill")["numMaterialized"] == 0
    control(source, reset=True, trouble=[bad_window])
    assert up.until_status(second, "SUCCESS", "FAILURE")["status"] == "SUCCESS"
    until("one window to fail", lambda: partitions(up, "backfill")["numFailed"] == 1)
    assert partitions(up, "backfill")["numMaterialized"] == 3
    ui = str(up.up["ui"])
    page.goto(f"{ui}/assets/ingest/{CODE}/{ENDPOINT}/backfill?view=partitions")
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    expect(page.get_by_text("Materialized (3)")).to_be_visible()
    picture(page, folder, "ingest-backfill")

    checks = f"{ui}/assets/ingest/{CODE}/{ENDPOINT}/backfill?view=checks"
    until("the check to name the window", lambda: shows(page, checks, "1 window is not complete"))
    picture(page, folder, "ingest-check")


def _others_finish_first(up: Warm) -> None:
    """While the backfill waits for a source that answers nothing: a table arrives, and somebody asks for a check."""
    catalog.save(up.engine, read_models(MODEL.encode(), "model.yaml"))
    catalog.publish(up.engine, "BESIDE-01")
    transact(up.engine, lambda connection: connection.execute(text("CREATE TABLE BESIDE (op_time TEXT, amount REAL)")))
    answer = loopback.post(
        f"{up.up['api']}/api/open/kpi/srcTableComplete",
        json={"srcTableName": "BESIDE", "opTime": "20010101"},
        headers={"Authorization": f"Bearer {up.key}"},
    )
    assert answer.status_code == 200, answer.text

    def has_run() -> bool:
        return [task.status for task in logged_tasks(up.engine, "BESIDE-01", "20010101")] == ["SUCCESS"]

    until("the arrival's model to finish", has_run)
    selfcheck = up.launch("selfcheck")
    assert up.until_status(selfcheck, "SUCCESS", "FAILURE")["status"] == "SUCCESS"


def _updates_a_bucket(up: Warm, page: Page, folder: Path) -> None:
    """Records that nobody has looked at for long: no sensor asks for them before their day."""
    old = update(ing_record).where(ing_record.c.id_number % BUCKETS == 0)
    values = {"modified_at": datetime.now(UTC) - timedelta(days=1000), "refresh_checked_at": None}
    stale = transact(up.engine, lambda connection: connection.execute(old.values(values))).rowcount
    assert stale > 0
    run = up.until_status(launch(up, "update", "00"), "SUCCESS", "FAILURE")
    assert run["status"] == "SUCCESS"
    [made] = run["assetMaterializations"]
    shown = {entry["label"]: entry.get("intValue") for entry in made["metadataEntries"]}
    assert (shown["stale or of other expressions"], shown["records unchanged"]) == (stale, stale)
    page.goto(f"{up.up['ui']}/assets/ingest/{CODE}/{ENDPOINT}/update?view=events&partition=00")
    expect(page.get_by_text("stale or of other expressions")).to_be_visible()
    picture(page, folder, "ingest-update")

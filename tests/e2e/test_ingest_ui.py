"""Ingest as a person sees it: windows that harvest themselves, one fetched again, a backfill with a failing window."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from platform_defs.demo_source.server import DemoSettings, open_server
from platform_defs.ingest.registry.file import read_file
from platform_defs.ingest.registry.loading import load
from platform_defs.ingest.registry.presets import read_preset
from tests.e2e.chromium import PATIENCE_MS, opened_page, picture
from tests.e2e.tree import copy_with_probes
from tests.e2e.warm import Warm
from tests.waiting import until

pytestmark = pytest.mark.needs("chromium")
CODE, ENDPOINT = "demo_crossref", "works"
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
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


def requests_of(source: str) -> int:
    answer: dict[str, Any] = httpx.get(f"{source}/_requests", trust_env=False).json()
    return int(answer["total"])


def test_a_source_harvests_itself_a_window_is_fetched_again_and_a_failing_window_is_seen(
    up: Warm, source: str, page: Page, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    file = read_file(read_preset("crossref"), "preset:crossref")
    load(up.engine, file.with_changes(code=CODE, base_url=source, start=TODAY - timedelta(days=4)), now=now)
    until("the planner to harvest four days", lambda: partitions(up, "harvest")["numMaterialized"] == 4, 150)
    ui = str(up.up["ui"])
    page.goto(f"{ui}/assets/ingest/{CODE}/{ENDPOINT}/harvest?view=partitions")
    expect(page.get_by_text("Materialized (4)")).to_be_visible(timeout=PATIENCE_MS)
    picture(page, tmp_path, "ingest-harvest")
    _fetches_again(up, source)
    _shows_a_failing_window(up, source, page, tmp_path)
    _updates_a_bucket(up)


def _fetches_again(up: Warm, source: str) -> None:
    before = requests_of(source)
    run = up.until_status(launch(up, "harvest", DAYS[0]), "SUCCESS", "FAILURE", seconds=90)
    assert run["status"] == "SUCCESS"
    [made] = run["assetMaterializations"]
    shown = {entry["label"]: entry.get("text") or entry.get("intValue") for entry in made["metadataEntries"]}
    assert shown["plan"].endswith(":g2")
    assert shown["records unchanged"] > 0
    assert requests_of(source) > before


def _shows_a_failing_window(up: Warm, source: str, page: Page, folder: Path) -> None:
    trouble = {"kind": "bad_id", "times": 1000, "id": DAYS[1]}
    httpx.post(f"{source}/_control", json={"trouble": [trouble]}, trust_env=False).raise_for_status()
    up.graphql(
        """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
             __typename } }""",
        params={"assetSelection": [key("backfill")], "partitionNames": DAYS},
    )
    selfcheck = up.launch("selfcheck")
    assert up.until_status(selfcheck, "SUCCESS", "FAILURE", seconds=90)["status"] == "SUCCESS"
    until("one window to fail", lambda: partitions(up, "backfill")["numFailed"] == 1, 150)
    assert partitions(up, "backfill")["numMaterialized"] == 3
    ui = str(up.up["ui"])
    page.goto(f"{ui}/assets/ingest/{CODE}/{ENDPOINT}/backfill?view=partitions")
    expect(page.get_by_text("Failed (1)")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("Materialized (3)")).to_be_visible()
    picture(page, folder, "ingest-backfill")

    def check() -> bool:
        page.goto(f"{ui}/assets/ingest/{CODE}/{ENDPOINT}/backfill?view=checks")
        page.wait_for_load_state("networkidle")
        return page.get_by_text("1 windows are not complete").count() > 0

    until("the check to name the window", check, 90)
    picture(page, folder, "ingest-check")


def _updates_a_bucket(up: Warm) -> None:
    run = up.until_status(launch(up, "update", "00"), "SUCCESS", "FAILURE", seconds=90)
    assert run["status"] == "SUCCESS"
    assert len(run["assetMaterializations"]) == 1

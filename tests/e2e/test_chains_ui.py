"""A run of a chain as a person sees it in the Dagster UI: its graph, a failed node, the retry that turns it green."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import needs
from tests.e2e.chains_site import ChainsSite, print_node, shell, waits_for_file
from tests.e2e.chromium import opened_page, picture, shows
from tests.e2e.platform_up import PlatformUp
from tests.waiting import until

pytestmark = [needs("chromium"), pytest.mark.parametrize("platform", ["embedded"], indirect=True)]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_page() as page:
        yield page


def test_a_failed_node_is_red_and_turns_green_when_it_is_retried_during_the_run(
    platform: PlatformUp, page: Page, tmp_path: Path
) -> None:
    with ChainsSite(platform) as site:
        nodes = [
            print_node("extract"),
            shell("load-orders", f"test -e {tmp_path}/there", "extract"),
            waits_for_file("load-customers", tmp_path, "extract"),
            print_node("report", "load-orders", "load-customers"),
        ]
        run_id = site.start(site.chain(f"seen_{tmp_path.name}"[:60].replace("-", "_"), nodes))
        site.until_node(run_id, "load-orders", "FAILED")
        until("the other to run", (tmp_path / "load-customers.begun").exists)
        (shown,) = site.dagster_runs(run_id)
        page.goto(f"{platform.up['ui']}/runs/{shown['runId']}")
        expect(page.get_by_text("Started", exact=True).first).to_be_visible()
        expect(page.get_by_text("Errored (1)")).to_be_visible()
        expect(page.get_by_text("STEP_FAILURE").first).to_be_visible()
        expect(page.get_by_text("load_orders", exact=True).first).to_be_visible()
        picture(page, tmp_path, "chain-failed-node")
        (tmp_path / "there").touch()
        site.call("POST", f"/runs/{run_id}/nodes/load-orders:retry", {"reason": "the file is there now"})
        site.until_node(run_id, "load-orders", "SUCCESS")
        (tmp_path / "open").touch()
        site.until_run(run_id, "SUCCESS")
        expect(page.get_by_text("Success", exact=True).first).to_be_visible()
        expect(page.get_by_text("Succeeded (4)")).to_be_visible()
        picture(page, tmp_path, "chain-retried-node")
        stats = {step["stepKey"]: step["status"] for step in site.dagster_runs(run_id)[0]["stepStats"]}
        assert stats == dict.fromkeys(["extract", "load_orders", "load_customers", "report"], "SUCCESS")
        job = shown["jobName"]
        until(
            "the job to be shown",
            lambda: shows(page, f"{platform.up['ui']}/locations/platform/jobs/{job}", "load_orders"),
        )
        expect(page.get_by_text("load_orders", exact=True).first).to_be_visible()
        picture(page, tmp_path, "chain-graph")

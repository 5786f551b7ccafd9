"""What a person sees in the Dagster UI, in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.platform_up import PlatformUp
from tests.needs import require

pytestmark = pytest.mark.needs("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 30_000


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def _picture(page: Page, tmp_path: Path, name: str) -> None:
    """Kept where PLATFORM_TEST_PICTURES says, for somebody to look at."""
    page.screenshot(path=Path(os.environ.get("PLATFORM_TEST_PICTURES", tmp_path)) / f"{name}.png")


def test_the_code_location_is_shown_as_loaded(platform: PlatformUp, page: Page, tmp_path: Path) -> None:
    page.goto(f"{platform.up['ui']}/locations")
    expect(page.locator("a[href='/locations/platform/']")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("Loaded", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    _picture(page, tmp_path, "locations")


def test_a_selfcheck_launched_by_hand_succeeds_in_front_of_ones_eyes(
    platform: PlatformUp, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{platform.up['ui']}/locations/platform/jobs/selfcheck")
    page.get_by_role("button", name="Materialize all").click()
    page.locator("a[href^='/runs/']").filter(has_text="View").click()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    _picture(page, tmp_path, "run")

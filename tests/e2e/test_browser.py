"""What a person sees in the Dagster UI, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.chromium import PATIENCE_MS, opened_page, picture
from tests.e2e.platform_up import PlatformUp

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_page() as page:
        yield page


def test_the_code_location_is_shown_as_loaded(platform: PlatformUp, page: Page, tmp_path: Path) -> None:
    page.goto(f"{platform.up['ui']}/locations")
    expect(page.locator("a[href='/locations/platform/']")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("Loaded", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    picture(page, tmp_path, "locations")


def test_a_selfcheck_launched_by_hand_succeeds_in_front_of_ones_eyes(
    platform: PlatformUp, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{platform.up['ui']}/locations/platform/jobs/selfcheck")
    page.get_by_role("button", name="Materialize all").click()
    page.locator("a[href^='/runs/']").filter(has_text="View").click()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    picture(page, tmp_path, "run")

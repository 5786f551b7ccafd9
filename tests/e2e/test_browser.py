"""What a person sees in the Dagster UI, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.chromium import opened_page, picture
from tests.e2e.platform_up import PlatformUp
from tests.lineage_events import run_event
from tests.waiting import until

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_page() as page:
        yield page


def test_the_code_location_is_shown_as_loaded(platform: PlatformUp, page: Page, tmp_path: Path) -> None:
    page.goto(f"{platform.up['ui']}/locations")
    expect(page.locator("a[href='/locations/platform/']")).to_be_visible()
    expect(page.get_by_text("Loaded", exact=True)).to_be_visible()
    picture(page, tmp_path, "locations")


def test_a_selfcheck_launched_by_hand_succeeds_in_front_of_ones_eyes(
    platform: PlatformUp, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{platform.up['ui']}/locations/platform/jobs/selfcheck")
    page.get_by_role("button", name="Materialize all").click()
    page.locator("a[href^='/runs/']").filter(has_text="View").click()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    picture(page, tmp_path, "run")


SHOP = "mysql://shop-db:3306"
SALES = "/assets/lineage/1/mysql~~shop-db~3A3306/mart.daily_sales"
UPSTREAM = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) {
    ... on AssetNode { groupName dependencyKeys { path } } } }"""


def test_a_table_of_lineage_is_reached_by_clicks_and_drawn_with_what_it_comes_from(
    platform: PlatformUp, page: Page, tmp_path: Path
) -> None:
    jobs = {"load": ("shop.orders", "staging.orders"), "build": ("staging.orders", "mart.daily_sales")}
    for job, (read, written) in jobs.items():
        event = run_event(job=job, reads=(read,), writes=(written,), namespace=SHOP, sql=None)
        platform.send_event(event)
    key = {"path": SALES.removeprefix("/assets/").split("/")}
    drawn = {
        "groupName": "demo_mysql_shop_db_3306",
        "dependencyKeys": [{"path": [*key["path"][:-1], "staging.orders"]}],
    }
    until(
        "the code server to have loaded the tables",
        lambda: platform.graphql(UPSTREAM, key=key)["assetNodeOrError"] == drawn,
    )

    page.goto(f"{platform.up['ui']}/assets?asset-selection=key%3A%22*daily_sales%22")
    page.locator(f"a[href='{SALES}']").click()
    expect(page.get_by_text("a table that lineage events name.")).to_be_visible()
    expect(page.get_by_text(SHOP).first).to_be_visible()
    picture(page, tmp_path, "lineage_table")
    page.get_by_role("tab", name="Lineage").click()
    expect(page.get_by_text("staging.orders").first).to_be_visible()
    picture(page, tmp_path, "lineage_of_table")
    page.goto(f"{platform.up['ui']}/asset-groups~group%3A%22demo_mysql_shop_db_3306%22")
    expect(page.get_by_text("shop.orders").first).to_be_visible()
    picture(page, tmp_path, "lineage_graph")

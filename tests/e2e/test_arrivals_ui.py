"""Table arrival as a person sees it in the Dagster UI: tables before their model, arrivals, a backfill, lateness."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import Connection, text, update

from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_model
from tests import loopback
from tests.arrivals.world import logged_tasks
from tests.e2e.chromium import opened_page, picture
from tests.e2e.warm import Warm
from tests.waiting import until

# the UI is the same on every store; what lies below is tested on each
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.parametrize("platform", ["embedded"], indirect=True)]
MODEL = "UI-01"
TABLES = ["UI_FACT_D", "UI_DIM_yyyymmdd"]
# two batches that no other test has
BATCHES = ["20010101", "20010102"]
FILE = """
models:
  - model_id: UI-01
    name: Orders by region
    depends_on: [UI_FACT_D, UI_DIM_yyyymmdd]
    source: platform
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM UI_FACT_D WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis:
      - {kpi_id: UI1001, name: Order amount, expression: SUM(amount)}
    due: "00:00"
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_page() as page:
        yield page


@pytest.fixture
def published(platform: Warm) -> str:
    """Published while everything runs; today's batch has been late since midnight."""

    def write(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE IF NOT EXISTS UI_FACT_D (op_time TEXT, region TEXT, amount REAL)"))
        connection.execute(text("INSERT INTO UI_FACT_D VALUES ('20010101', 'N', 5), ('20010102', 'S', 7)"))
        long_ago = datetime(2001, 1, 1, tzinfo=UTC)
        connection.execute(update(metrics_model).where(metrics_model.c.model_id == MODEL).values(published_at=long_ago))

    catalog.save(platform.engine, read_file(FILE.encode(), "ui.yaml"))
    catalog.publish(platform.engine, MODEL)
    transact(platform.engine, write)
    return str(platform.up["ui"])


def arrives(platform: Warm, table: str, op_time: str) -> None:
    answer = loopback.post(
        f"{platform.up['api']}/api/open/kpi/srcTableComplete",
        json={"srcTableName": table, "opTime": op_time},
        headers={"Authorization": f"Bearer {platform.key}"},
    )
    assert answer.status_code == 200, answer.text


def test_a_published_model_its_tables_arrivals_lateness_and_a_backfill_are_seen_in_the_ui(
    platform: Warm, published: str, page: Page, tmp_path: Path
) -> None:
    pids = platform.up["pids"]
    _shows_the_model_below_its_tables(platform, published, page, tmp_path)
    for op_time in BATCHES:
        arrives(platform, "UI_FACT_D", op_time)
    _shows_what_arrived(published, page, tmp_path)
    _shows_what_is_late(published, page, tmp_path)
    _backfills(published, page, tmp_path)

    def executed() -> list[Any]:
        tasks = [task for op_time in BATCHES for task in logged_tasks(platform.engine, MODEL, op_time)]
        return tasks if len(tasks) == len(BATCHES) and all(task.status != "RUNNING" for task in tasks) else []

    tasks = until("both batches to be executed", executed)
    assert [(task.op_time, task.status, task.trigger_code, task.missing_tables) for task in tasks] == [
        (op_time, "SUCCESS", "OPERATOR", ["UI_DIM_yyyymmdd"]) for op_time in BATCHES
    ]
    assert platform.up["pids"] == pids, "a reload of the definitions is no death of the code server"


def _shows_the_model_below_its_tables(platform: Warm, ui: str, page: Page, folder: Path) -> None:
    _knows_model(platform, MODEL)
    page.goto(f"{ui}/assets/models/{MODEL}?view=lineage&lineageScope=upstream")
    for name in (*TABLES, MODEL):
        expect(page.locator("svg").get_by_text(name, exact=True)).to_be_visible()
    picture(page, folder, "arrivals-graph")
    columns = [_left(page, name) for name in (*TABLES, MODEL)]
    assert columns[0] == columns[1] < columns[2]


def _left(page: Page, name: str) -> int:
    box = page.locator("svg").get_by_text(name, exact=True).bounding_box()
    assert box is not None
    return round(box["x"])


def _shows_what_arrived(ui: str, page: Page, folder: Path) -> None:
    page.goto(f"{ui}/assets/tables/UI_FACT_D?view=partitions")
    expect(page.get_by_text("Materialized (2)")).to_be_visible()
    for op_time in BATCHES:
        expect(page.get_by_text(op_time, exact=True).first).to_be_visible()
    picture(page, folder, "arrivals-partitions")


def _shows_what_is_late(ui: str, page: Page, folder: Path) -> None:
    page.goto(f"{ui}/assets/models/{MODEL}?view=checks&checkDetail=on_time")
    expect(page.get_by_text(f"lacks {', '.join(TABLES)}").first).to_be_visible()
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    picture(page, folder, "arrivals-late")


def _backfills(ui: str, page: Page, folder: Path) -> None:
    page.goto(f"{ui}/assets/models/{MODEL}?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Select a partition or create one").click()
    page.get_by_placeholder("Filter partitions").fill("200101")
    for op_time in BATCHES:
        page.get_by_role("menuitem").filter(has_text=op_time).click()
    picture(page, folder, "arrivals-backfill")
    page.get_by_role("button", name="Launch backfill").click()


FAILING = """
models:
  - model_id: UI-02
    name: Stock by region
    depends_on: [UI_STOCK_D]
    period: hour
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM UI_STOCK_D WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis:
      - {kpi_id: UI2001, name: Stock, expression: SUM(amount)}
      - {kpi_id: UI2002, name: Average, expression: AVG(amount)}
"""
# hours, which no other test has, in the order in which they arrive; the first fails, for the table is created after it
HOURS = ["2002010103", "2002010101", "2002010102"]


def test_a_failed_batch_is_a_failed_partition_with_its_run_and_is_run_again_from_the_page(
    platform: Warm, page: Page, tmp_path: Path
) -> None:
    ui = str(platform.up["ui"])
    catalog.save(platform.engine, read_file(FAILING.encode(), "failing.yaml"))
    catalog.publish(platform.engine, "UI-02")
    arrives(platform, "UI_STOCK_D", HOURS[0])
    with platform.engine.begin() as connection:
        connection.execute(text("CREATE TABLE UI_STOCK_D (op_time TEXT, region TEXT, amount REAL)"))
        values = [{"hour": hour, "amount": n + 1.5} for n, hour in enumerate(sorted(HOURS))]
        connection.execute(text("INSERT INTO UI_STOCK_D VALUES (:hour, 'N', :amount), (:hour, 'S', 1)"), values)
    for op_time in [*HOURS[1:], "200201"]:
        arrives(platform, "UI_STOCK_D", op_time)
    _knows_model(platform, "UI-02")
    page.goto(f"{ui}/assets/models/UI-02?view=partitions")
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    expect(page.get_by_text("Materialized (2)")).to_be_visible()
    expect(page.get_by_text("200201", exact=True)).to_have_count(0)
    tops = [_top(page, hour) for hour in sorted(HOURS)]
    assert tops == sorted(tops), "partitions are in the order of time, whichever arrived first"
    page.get_by_text(HOURS[0], exact=True).first.click()
    expect(page.get_by_text("did not materialize this asset")).to_be_visible()
    picture(page, tmp_path, "arrivals-failed-partition")
    failed = logged_tasks(platform.engine, "UI-02", HOURS[0])[0]
    page.get_by_role("link", name=failed.run_id[:8]).click()
    expect(page.get_by_text("no such table: UI_STOCK_D").first).to_be_visible()
    picture(page, tmp_path, "arrivals-failed-run")
    page.goto(f"{ui}/runs?q[0]=id:{failed.run_id}")
    expect(page.get_by_text("arrival of UI_STOCK_D").first).to_be_visible()
    expect(page.get_by_text("Manually launched")).to_have_count(0)
    picture(page, tmp_path, "arrivals-who-asked")
    page.goto(f"{ui}/assets/models/UI-02?view=checks")
    expect(page.get_by_text(f"batch {HOURS[0]} failed (task {failed.id})").first).to_be_visible()
    _runs_what_failed(platform, ui, page, tmp_path)
    _plots_a_kpi(ui, page, tmp_path)
    page.goto(f"{ui}/assets/models/UI-02?view=checks")
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible()


def _runs_what_failed(platform: Warm, ui: str, page: Page, folder: Path) -> None:
    page.goto(f"{ui}/assets/models/UI-02?view=partitions")
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Failed and missing").click()
    expect(page.get_by_text("1 partition", exact=True)).to_be_visible()
    picture(page, folder, "arrivals-failed-and-missing")
    page.get_by_role("button", name="Launch 1 run").click()

    def executed() -> bool:
        last = logged_tasks(platform.engine, "UI-02", HOURS[0])[-1]
        return (last.status, last.trigger_code) == ("SUCCESS", "OPERATOR")

    until("the failed batch to be executed again", executed)
    page.goto(f"{ui}/assets/models/UI-02?view=partitions")
    expect(page.get_by_text("Materialized (3)")).to_be_visible()


def _plots_a_kpi(ui: str, page: Page, folder: Path) -> None:
    page.goto(f"{ui}/assets/models/UI-02?view=overview")
    page.get_by_role("button", name="Plots").click()
    expect(page.get_by_text("UI2001 total")).to_be_visible()
    expect(page.get_by_text("UI2002 total")).to_have_count(0)
    picture(page, folder, "arrivals-plot")


def _knows_model(platform: Warm, model_id: str) -> None:
    known = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename } }"""
    key = {"path": ["models", model_id]}
    until(
        "the UI to know the model without a restart",
        lambda: platform.graphql(known, key=key)["assetNodeOrError"]["__typename"] == "AssetNode",
    )


def _top(page: Page, name: str) -> int:
    box = page.get_by_text(name, exact=True).first.bounding_box()
    assert box is not None
    return round(box["y"])

"""The demo of a first start: what it shows, the five lines followed word by word, and that it goes without a trace."""

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.demo.lineage import ARRIVALS_NAMESPACE, TABLES
from platform_defs.demo.story import CLOSE, SALES
from platform_defs.lineage.tables.keys import Table, asset_key_of
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.access import tenants
from platform_defs.store.tables.arrivals import metrics_model
from platform_defs.store.tables.chains import job_chain_definition
from platform_defs.store.tables.ingest import ing_record
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.tables.registry import reg_provenance
from platform_defs.store.tables.webhooks import metrics_webhook_delivery, metrics_webhook_subscription
from tests import loopback
from tests.e2e.chromium import opened_page, picture, show_whole_graph
from tests.e2e.conftest import UNHURRIED
from tests.e2e.platform_up import PlatformUp
from tests.waiting import until

pytestmark = pytest.mark.needs("chromium")
CHAIN_RUNS = """query ($job: String!) { runsOrError(filter: {pipelineName: $job}) {
    ... on Runs { results { runId status } } } }"""
LABELS = ["1 open", "2 click", "3 retry", "4 see", "5 end"]
MINE = """
models:
  - model_id: mine
    name: Mine
    depends_on: [MY_TABLE]
    source: platform
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM MY_TABLE WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis: [{kpi_id: my_kpi, name: Mine, expression: SUM(amount)}]
"""
CHAIN = {"name": "mine", "dagJson": {"nodes": [{"id": "a", "type": "print", "cfg": {"message": "hello"}}]}}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformUp]:
    up = PlatformUp(tmp_path_factory.mktemp("demo") / "a home", UNHURRIED, demo=True)
    try:
        yield up.until_ready()
    finally:
        up.end()


@pytest.fixture(scope="module")
def lines(demo: PlatformUp) -> list[str]:
    """The five lines that the start printed, without their labels."""

    def look() -> list[str]:
        assert "the demo is not complete" not in demo.log, demo.log
        found = [line.strip() for line in demo.lines if re.match(r"  \d \w+ ", line)]
        return found if len(found) == len(LABELS) else []

    found = until("the five lines", look)
    assert [line[: len(label)] for line, label in zip(found, LABELS, strict=True)] == LABELS
    return [line[len(label) :].strip() for line, label in zip(found, LABELS, strict=True)]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_page() as page:
        yield page


def address(line: str) -> str:
    [found] = re.findall(r"https?://[^ ]+", line)
    return str(found)


def command(line: str) -> str:
    """What stands behind the explanation, or behind the second of two."""
    return line.partition(" was told: " if " was told: " in line else ": ")[2]


def in_another_terminal(demo: PlatformUp, line: str) -> subprocess.CompletedProcess[str]:
    """Where nobody has named the home."""
    variables = {name: value for name, value in demo.environment.items() if name != "PLATFORM_HOME"}
    return subprocess.run(command(line), shell=True, cwd=demo.folder, env=variables, capture_output=True, text=True)


def in_shell(demo: PlatformUp, line: str) -> str:
    done = in_another_terminal(demo, line)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(demo: PlatformUp) -> str:
    """What `platform demo show` says."""
    done = demo.command("demo", "show")
    assert done.returncode == 0, done.stderr
    return done.stdout


def removal(demo: PlatformUp, line: str) -> bool:
    """Whether the demo is removed now. What still runs on a busy machine keeps it, and is told to be waited for."""
    done = in_another_terminal(demo, line)
    if done.returncode:
        assert "Then remove the demo again" in done.stderr
        return False
    assert "is revoked" in done.stdout or "had been removed already" in done.stdout
    # said after a minute of waiting for them
    return "not ended yet" not in done.stdout


def asked(demo: PlatformUp, *arguments: str) -> list[dict[str, Any]]:
    done = demo.command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_five_lines_do_what_they_say(demo: PlatformUp, lines: list[str], page: Page, tmp_path: Path) -> None:
    # on a busy machine the start does not wait for that, and says so
    until("the lines to be true", lambda: "have not ended yet" not in told(demo))
    batch = re.findall(r"batch (\d{8})", lines[0])[0]
    _one_batch_is_red(lines[0], page, tmp_path)
    run_id = re.findall(r"/runs/([0-9a-f-]{36})/", lines[2])[0]
    assert {node["node_id"]: node["status"] for node in asked(demo, "chains", "nodes", run_id)} == {
        **dict.fromkeys(("wait_for_orders", "count_orders", "tell_stores"), "SUCCESS"),
        "close_day": "FAILED",
        **dict.fromkeys(("best_store", "tell_finance"), "SKIPPED"),
    }
    _node_is_red(demo, page, tmp_path)
    _corrects_and_backfills(demo, lines, page, tmp_path)
    assert json.loads(in_shell(demo, lines[2]))
    until(
        "the chain to go on",
        lambda: {node["status"] for node in asked(demo, "chains", "nodes", run_id)} == {"SUCCESS"},
    )
    _dashboard_is_drawn(demo, lines[3], page, tmp_path)
    deliveries = in_shell(demo, lines[3])
    assert re.search(rf"delivered +demo_daily_sales +{batch}", deliveries), deliveries


def _one_batch_is_red(line: str, page: Page, folder: Path) -> None:
    page.goto(address(line))
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    expect(page.get_by_text("did not materialize this asset")).to_be_visible()
    picture(page, folder, "demo-failed-partition")


def _node_is_red(demo: PlatformUp, page: Page, folder: Path) -> None:
    """The run of the chain is a failed run, whose page names the node and its reason."""

    def failed() -> str | None:
        """The nodes of the chain have ended before its run in Dagster has."""
        [run] = demo.graphql(CHAIN_RUNS, job=f"chain_{CLOSE}")["runsOrError"]["results"]
        assert run["status"] != "SUCCESS"
        return str(run["runId"]) if run["status"] == "FAILURE" else None

    page.goto(f"{demo.up['ui']}/runs/{until('the run of the chain to fail', failed)}")
    expect(page.get_by_text("close_day").first).to_be_visible()
    expect(page.get_by_text("STEP_FAILURE").first).to_be_visible()
    expect(page.get_by_text("revenue_of_a_store_is_below_one_million").first).to_be_visible()
    picture(page, folder, "demo-chain")


def _dashboard_is_drawn(demo: PlatformUp, line: str, page: Page, folder: Path) -> None:
    until("the code server to have loaded the tables", lambda: _lineage_tables() <= set(_demo_assets(demo)))
    # as of somebody who has looked at a smaller graph before: this one would be cut at the window's edges
    page.evaluate("localStorage.setItem('lineageGraphZoomLevel', '1')")
    page.goto(address(line))
    assert "double click" in line
    show_whole_graph(page)
    for table in ("demo_orders", "raw.orders", "staging.orders", "marts.daily_sales"):
        expect(page.get_by_text(table).first).to_be_visible()
    picture(page, folder, "demo-lineage")


def _corrects_and_backfills(demo: PlatformUp, lines: list[str], page: Page, folder: Path) -> None:
    page.goto(address(lines[1]))
    page.get_by_role("button", name="Launch Run").click()
    corrected = ("chains", "runs", "--chain", "demo_correct_order")
    until("the correction", lambda: [run["status"] for run in asked(demo, *corrected)] == ["SUCCESS"])
    page.goto(address(lines[0]))
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Failed and missing").click()
    page.get_by_role("button", name="Launch 1 run").click()

    batch = re.findall(r"batch (\d{8})", lines[0])[0]
    until(
        "the batch to be executed again",
        lambda: asked(demo, "models", "tasks", SALES, "--op-time", batch)[0]["status"] == "SUCCESS",
    )
    page.goto(address(lines[0]))
    expect(page.get_by_text("Materialized (14)")).to_be_visible()
    picture(page, folder, "demo-mended")


def test_a_week_is_harvested_and_one_window_is_partial(
    demo: PlatformUp, lines: list[str], page: Page, tmp_path: Path
) -> None:
    def partial() -> list[dict[str, Any]]:
        # exit code 1, because a window is not complete
        answer = demo.command("ingest", "windows", "demo_crossref", "works", "--json").stdout
        return [one for one in map(json.loads, answer.splitlines()) if one["status"] == "partial"]

    [window] = until("the harvest", partial)
    assert "also when it was asked 3 times" in window["reason"]
    page.goto(f"{demo.up['ui']}/assets/ingest/demo_crossref/works/harvest?view=partitions")
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    expect(page.get_by_text("Materialized (6)")).to_be_visible()
    picture(page, tmp_path, "demo-harvest")


def test_the_receiver_of_webhooks_can_be_looked_at(demo: PlatformUp, lines: list[str]) -> None:
    [subscription] = asked(demo, "webhooks", "list")
    received = loopback.get(subscription["callbackUrl"]).json()
    assert received[0]["message"]["event"] == "KPI_UPDATED"
    assert received[0]["message"]["modelId"] == "demo_daily_sales"


def test_one_table_is_late(demo: PlatformUp, lines: list[str]) -> None:
    late = 'platform_arrivals_late_tables{model="demo_daily_returns"} 1.0'
    until("a late table", lambda: late in loopback.get(f"{demo.up['api']}/metrics").text)


def test_the_last_line_takes_it_away_and_nothing_of_mine(demo: PlatformUp, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    assert demo.command("models", "load", str(tmp_path / "mine.yaml")).returncode == 0
    # from today on: it has no window that is due
    today = f"{datetime.now(UTC):%F}"
    source = ("registry", "load", "preset:crossref", "--code", "mine", "--start", today)
    assert demo.command(*source).returncode == 0
    assert demo.command("tenants", "add", "7", "acme", "Acme").returncode == 0
    key = {"Authorization": f"Bearer {demo.up['demo_key']}"}
    with loopback.client(base_url=demo.up["api"], headers=key) as client:
        hook = {"kpiId": "my_kpi", "callbackUrl": "https://example.com/hook"}
        assert client.post("/api/open/kpi/webhooks", json=hook).status_code == 201
        assert client.post("/api/v1/chains", json=CHAIN).status_code == 200
    # what the schedule of a demo source launches at night; that no bucket is named here is no matter
    nightly = demo.launch("__anonymous_asset_job_ingest_staleness__demo_crossref__works")
    demo.until_status(nightly, "SUCCESS", "FAILURE")
    assert until("the demo to be removed", lambda: removal(demo, lines[4]))
    assert demo.up["demo_key"] is None, "it is revoked"
    engine = open_engine(f"sqlite:///{demo.home}/platform.db")
    with engine.connect() as connection:
        for column, mine in {
            metrics_model.c.model_id: {"mine"},
            job_chain_definition.c.name: {"mine"},
            reg_provenance.c.provenance_code: {"mine"},
            metrics_webhook_subscription.c.callback_url: {"https://example.com/hook"},
            tenants.c.tenant_id: {1, 7},
            lineage_events.c.id: set(),
            metrics_webhook_delivery.c.id: set(),
            ing_record.c.id: set(),
        }.items():
            assert set(connection.scalars(select(column))) == mine, column
    engine.dispose()
    until("the UI to have forgotten it", lambda: not _demo_assets(demo))
    left = demo.graphql("{ runsOrError { ... on Runs { results { jobName } } } }")["runsOrError"]["results"]
    # the nightly jobs of the platform itself run whenever their hour comes
    names = {run["jobName"] for run in left if not run["jobName"].endswith("_retention")}
    assert not names, "runs that the shop was the reason for"
    assert demo.process.poll() is None


def _lineage_tables() -> set[str]:
    return {
        "/".join(asset_key_of(Table(DEMO_TENANT.id, one.namespace, one.name), ARRIVALS_NAMESPACE))
        for one in TABLES.values()
    }


def _demo_assets(demo: PlatformUp) -> list[str]:
    assets = demo.graphql("{ assetsOrError { ... on AssetConnection { nodes { key { path } } } } }")
    keys = ["/".join(node["key"]["path"]) for node in assets["assetsOrError"]["nodes"]]
    return [key for key in keys if "demo" in key or key.startswith("lineage/")]

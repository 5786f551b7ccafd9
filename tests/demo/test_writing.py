"""The demo is written through the API; a kill at any point, and a removal, leave nothing twice and nothing behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, delete, func, select

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant
from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.arrivals.models.life import disable_orphaned_subscriptions
from platform_defs.connections import Stores
from platform_defs.demo import story
from platform_defs.demo.doors import Api, RunningPlatform, open_api
from platform_defs.demo.guide import guide_lines
from platform_defs.demo.lineage import DASHBOARD, JOBS, TABLES
from platform_defs.demo.removal import observed_by_nobody, remove_demo
from platform_defs.demo.shop import Calendar
from platform_defs.demo.state import DemoState, DemoStatus, begin, read_state, shop_file
from platform_defs.demo.writing import await_story, write_demo
from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.graph.open import open_graph
from platform_defs.graph.text import graph_lines
from platform_defs.ingest.registry.file import read_file as read_registry_file
from platform_defs.ingest.registry.loading import load as load_registry
from platform_defs.ingest.registry.presets import read_preset
from platform_defs.lineage.query.names import resolve
from platform_defs.lineage.query.walk import walk
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.store.tables import metadata
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model_running, metrics_task_log
from platform_defs.store.tables.chains import job_chain_definition, job_run
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.supervisor.demo import ensure_demo_key
from tests.api.serving import serve_api
from tests.commands.command_line import RunPlatform
from tests.every_row import rows_of_every_table
from tests.lineage_events import run_event

WEBHOOK = "http://127.0.0.2:9/webhook"
ALLOW = "127.0.0.2/32"
UTC_ZONE = ZoneInfo("UTC")
WRITTEN = (
    *(metrics_etl_log, metrics_task_log, metrics_webhook_subscription),
    *(job_chain_definition, job_run, lineage_events),
)
# What a removal may change: records of what was done, counters, dictionaries that every load of a source fills.
LASTING = {"work", "job_audit", "work_definition_version", "lineage_rebuild", "sys_dict_type", "sys_dict_item"}
MINE = """
models:
  - model_id: mine
    name: Mine
    depends_on: [MY_TABLE, demo_stores]
    source: platform
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM MY_TABLE WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis: [{kpi_id: my_kpi, name: Mine, expression: SUM(amount)}]
"""


class Killed(Exception):
    pass


class Dying(Api):
    """Dies instead of its request number `last`."""

    def __init__(self, api: Api, last: int) -> None:
        self._api, self._left = api, last

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        if not self._left:
            raise Killed
        self._left -= 1
        return self._api._ask(method, path, **request)


@contextmanager
def running(engine: Engine, home: Path) -> Iterator[Api]:
    key = ensure_demo_key(engine, home)
    with serve_api(engine, webhook_allow=ALLOW) as served, open_api(RunningPlatform(served.url, "", key)) as api:
        yield api


def write(engine: Engine, api: Api, home: Path, state: DemoState) -> DemoState:
    return write_demo(engine, api, home, state, webhook=WEBHOOK, zone=UTC_ZONE)


def new_state(home: Path) -> DemoState:
    state = begin(home, asked=None, embedded=True, is_new=True)
    assert state is not None
    return state


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in WRITTEN}


def test_what_is_written_is_what_the_page_says(migrated: dict[str, Engine], tmp_path: Path) -> None:
    engine = migrated["sqlite"]
    with emptied(engine), running(engine, tmp_path) as api:
        state = write(engine, api, tmp_path, new_state(tmp_path))
        assert read_state(tmp_path) == state
        assert state.status is DemoStatus.WRITTEN
        assert counts(engine) == {
            "metrics_etl_log": 14 * 3 - 1,  # the returns of the last day are late
            "metrics_task_log": 14 * 2 - 1,
            "metrics_webhook_subscription": 1,
            "job_chain_definition": 2,
            "job_run": 1,
            "lineage_events": 2 * len(JOBS),
        }
        late = api.get(f"/api/open/kpi/models/{story.RETURNED}/batches/{Calendar(state.born).last}")
        assert late["missing"] == [story.RETURNS]
        nodes = api.get(f"/api/v1/runs/{state.chain_run}/nodes")
        assert len(nodes) == 6


def test_a_column_of_the_dashboard_can_be_followed_back_to_the_shop(engine: Engine, tmp_path: Path) -> None:
    with running(engine, tmp_path) as api:
        write(engine, api, tmp_path, new_state(tmp_path))
    with open_stores_of(Settings(home=tmp_path), engine) as stores:
        graph = stores.graph.for_tenant(DEMO_TENANT.id)
        found = walk(graph, resolve(graph, f"{TABLES[DASHBOARD].name}.revenue"), upstream=True, depth=9, limit=99)
    assert {asset.name for asset in found.assets.values()} == {
        "boards.sales_overview.revenue",
        "marts.daily_sales.revenue",
        "staging.orders.amount",
        "raw.orders.amount",
        "main.demo_orders.amount",
    }


def test_where_the_ui_shows_no_lineage_the_fourth_line_has_a_command_that_does(
    run_platform: RunPlatform, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    engine = open_engine(f"sqlite:///{home}/platform.db")
    try:
        with running(engine, home) as api:
            state = write(engine, api, home, new_state(home))
    finally:
        engine.dispose()
    settings = Settings(home=home, lineage_observe=False)
    line = dict(guide_lines(RunningPlatform("", "", "key"), state, settings, settled=True))["4 see"]
    _, command, _ = line.split("`")
    code, out, err = run_platform(*command.partition("platform ")[2].split())
    assert code == 0, err
    assert out.startswith("boards.sales_overview")
    assert "main.demo_orders" in out


def test_a_shop_whose_runs_have_not_ended_is_not_said_to_be_true(engine: Engine, tmp_path: Path) -> None:
    """Nobody executes runs here; a moment that has passed already is the last one at which to look."""
    with running(engine, tmp_path) as api:
        state = write(engine, api, tmp_path, new_state(tmp_path))
        assert not await_story(api, "http://127.0.0.1:1", state, dashboard=None, give_up_at=0.0)
    assert not state.settled


@pytest.mark.parametrize("last", [2, 4, 7, 30])
def test_a_kill_midway_is_completed_and_nothing_is_written_twice(
    migrated: dict[str, Engine], tmp_path: Path, last: int
) -> None:
    engine = migrated["sqlite"]
    with emptied(engine), running(engine, tmp_path) as api:
        with pytest.raises(Killed):
            write(engine, Dying(api, last), tmp_path, new_state(tmp_path))
        state = new_state(tmp_path)
        assert state.status is DemoStatus.BEGUN
        shop = shop_file(tmp_path).read_bytes()
        write(engine, api, tmp_path, state)
        once = counts(engine)
        assert once["metrics_etl_log"] == 14 * 3 - 1
        assert once["lineage_events"] == 2 * len(JOBS)
        write(engine, api, tmp_path, state)
        assert counts(engine) == once
        assert shop_file(tmp_path).read_bytes() == shop, "a user may have corrected the shop"


def test_a_removal_leaves_the_database_as_it_was_before_the_demo(engine: Engine, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    add_tenant(engine, Tenant(7, "acme", "Acme"))
    own_key = issue_key(engine, "mine", ["lineage:write", "chain:write"], source_type=SourceType.COMPUTE, tenant_id=7)
    catalog.save(engine, read_file(MINE.encode(), "mine.yaml"), disable_orphaned_subscriptions)
    mine = read_registry_file(read_preset("crossref"), "preset").with_changes(code="mine", base_url=None, start=None)
    load_registry(engine, mine, now=datetime.now(UTC))
    with serve_api(engine, webhook_allow=ALLOW) as served:
        with open_api(RunningPlatform(served.url, "", own_key)) as api:
            api.post("/api/v1/chains", {"name": "mine", "dagJson": {"nodes": [PRINT]}})
            api.post("/api/openlineage", [own_event(TABLES["marts.daily_sales"].name)])
        before, graph_before = rows_of_every_table(engine, without=LASTING), graphs(settings, engine)
        with open_api(RunningPlatform(served.url, "", ensure_demo_key(engine, tmp_path))) as api:
            load_demo_sources(engine, "http://127.0.0.1:9", now=datetime.now(UTC))
            write(engine, api, tmp_path, new_state(tmp_path))
            assert graphs(settings, engine) != graph_before
    end_executions(engine)
    for _ in range(2):
        with open_stores_of(settings, engine) as stores:
            remove_demo(stores, tmp_path)
    after = rows_of_every_table(engine, without=LASTING)
    # the key stays on record as revoked; arrivals of a table that a user's model reads stay too
    assert [row for row in after.pop("api_keys") if "demo" in row and row[-1] == "None"] == []
    assert {row[1] for row in after.pop("metrics_etl_log")} == {"demo_stores"}
    del before["api_keys"], before["metrics_etl_log"]
    assert after == before
    assert graphs(settings, engine) == graph_before
    assert not shop_file(tmp_path).exists()


def test_what_a_user_said_of_the_shops_tables_in_the_demo_tenant_stays(engine: Engine, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    name = "marts.daily_sales"
    with running(engine, tmp_path) as api:
        api.post("/api/openlineage", [own_event(TABLES[name].name)])
        before = graphs(settings, engine)
        write(engine, api, tmp_path, new_state(tmp_path))
        api.post("/api/open/kpi/webhooks", {"kpiId": "demo_revenue", "callbackUrl": "https://example.com/hook"})
    end_executions(engine)
    with open_stores_of(settings, engine) as stores:
        remove_demo(stores, tmp_path)
        assert observed_by_nobody(stores) == [table for table in TABLES if table != name]
    assert graphs(settings, engine) == before
    with engine.connect() as connection:
        [subscription] = connection.execute(select(metrics_webhook_subscription)).all()
    assert subscription.callback_url == "https://example.com/hook"
    assert "its KPI is gone" in subscription.disabled_reason


PRINT = {"id": "a", "type": "print", "cfg": {"message": "hello"}}


def own_event(table: str) -> dict[str, Any]:
    namespace = TABLES["marts.daily_sales"].namespace
    event = run_event()
    event["inputs"] = [{"namespace": namespace, "name": table}]
    event["outputs"] = [{"namespace": namespace, "name": "mine.report"}]
    return event


def graphs(settings: Settings, engine: Engine) -> list[list[str]]:
    with open_stores_of(settings, engine) as stores:
        return [sorted(graph_lines(stores.graph.for_tenant(tenant))) for tenant in (1, 7)]


@contextmanager
def open_stores_of(settings: Settings, engine: Engine) -> Iterator[Stores]:
    graph = open_graph(settings, engine)
    try:
        yield Stores(settings, engine, graph)
    finally:
        graph.close()


def end_executions(engine: Engine) -> None:
    """As the runner would have done."""
    with engine.begin() as connection:
        connection.execute(delete(metrics_model_running))


@contextmanager
def emptied(engine: Engine) -> Iterator[None]:
    try:
        yield
    finally:
        with engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())

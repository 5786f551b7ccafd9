"""The lineage jobs as Dagster runs them: recovery applies waiting events, retention deletes old rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy import Engine, func, select, update

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant
from platform_defs.definitions import defs
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine, transact
from platform_defs.store.tables.lineage import lineage_dead_letter, lineage_events
from tests.lineage_events import run_event

# Dagster itself uses the deprecated InitResourceContext.dagster_run when one resource depends on another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
SOURCE = Principal("key", "spark", frozenset(), SourceType.COMPUTE, DEMO_TENANT)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    opened = open_engine(Settings.load().database_url)
    migrate.upgrade(opened)
    add_tenant(opened, DEMO_TENANT)
    yield opened
    opened.dispose()


def store_without_graph(engine: Engine, count: int) -> None:
    intake = Intake(KnownTenants(engine))
    items = [intake.prepare(SOURCE, run_event(job=f"job{number}")).prepared for number in range(count)]
    transact(engine, lambda connection: raw_events.insert_rows(connection, [item.row for item in items]))
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    transact(engine, lambda connection: connection.execute(update(lineage_events).values(created_at=an_hour_ago)))


def run(job: str) -> None:
    with DagsterInstance.ephemeral() as instance:
        assert defs.resolve_job_def(job).execute_in_process(instance=instance).success


def lines(engine: Engine) -> list[str]:
    return list(graph_lines(EmbeddedGraph.on(engine).for_tenant(DEMO_TENANT.id)))


def count(engine: Engine, table: object) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())  # type: ignore[arg-type]


def test_the_recovery_job_applies_waiting_events_once(home: Engine) -> None:
    store_without_graph(home, 3)
    assert lines(home) == []
    run("lineage_apply")
    found = lines(home)
    assert any("OUTPUT_TO" in line for line in found)
    assert sum('"executionCount": 1' in line for line in found) == 3
    run("lineage_apply")
    assert lines(home) == found


def test_the_recovery_job_rebuilds_marked_tenants(home: Engine) -> None:
    store_without_graph(home, 2)
    run("lineage_apply")
    found = lines(home)
    EmbeddedGraph.on(home).for_tenant(DEMO_TENANT.id).clear()
    transact(home, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))
    run("lineage_apply")
    assert lines(home) == found
    assert rebuild_requests.list_open(home) == []


def test_a_request_that_comes_during_a_rebuild_stays_open(home: Engine) -> None:
    transact(home, lambda connection: rebuild_requests.request_rebuild(connection, [1]))
    before = rebuild_requests.list_open(home)[0].number
    transact(home, lambda connection: rebuild_requests.request_rebuild(connection, [1]))
    rebuild_requests.answer_up_to(home, 1, before, first=None)
    assert [mark.tenant_id for mark in rebuild_requests.list_open(home)] == [1]
    rebuild_requests.answer_up_to(home, 1, rebuild_requests.list_open(home)[0].number, first=None)
    assert rebuild_requests.list_open(home) == []


def test_retention_forgets_what_is_older_than_the_settings_say(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    store_without_graph(home, 3)
    dead_letters.store_refusals(home, SOURCE, [Refusal("{}", "eventTime: expected")])
    run("lineage_retention")
    assert (count(home, lineage_events), count(home, lineage_dead_letter)) == (3, 1)
    old = datetime.now(UTC) - timedelta(days=31)
    for table in (lineage_events, lineage_dead_letter):
        with home.begin() as connection:
            connection.execute(update(table).values(created_at=old))
    run("lineage_retention")
    assert (count(home, lineage_events), count(home, lineage_dead_letter)) == (3, 0)
    monkeypatch.setenv("PLATFORM_LINEAGE_RETENTION_DAYS", "30")
    run("lineage_retention")
    assert count(home, lineage_events) == 0

"""What people are told when a source may not be asked for hours: by the run, the command and the planner."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, SkipReason
from sqlalchemy import Engine, update

from platform_defs.cli import main
from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.codes import ErrorLevel, Operation, PlanStatus, TaskStatus, Trigger
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.planning.planner import plan_window
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan, ing_task
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.planning.test_planner import NOW, SPEC, rows_of
from tests.ingest.test_assets import failure_of, materialised, records_of
from tests.ingest.test_assets import instance as of_assets
from tests.ingest.test_planner_sensor import HARVEST, START, UPDATE, asked_for, keys_of, loaded_specs
from tests.ingest.test_planner_sensor import instance as of_sensors

__all__ = ["of_assets", "of_sensors"]
# Dagster's own doing where one resource needs another
pytestmark = pytest.mark.filterwarnings("ignore:.*")


def test_the_run_ends_and_says_of_each_window_until_when_it_waits_and_that_it_goes_on(
    engine: Engine, of_assets: DagsterInstance
) -> None:
    def refuse(number: int) -> None:
        raise ResponseError(ErrorLevel.TRANSIENT, "GATE_QUOTA_DAILY", "the quota is spent", not_before=tomorrow)

    tomorrow = NOW + timedelta(hours=20)
    source = MemorySource(SPEC.pagination, [], trouble=refuse)
    failed = materialised(engine, SPEC, source, of_assets, "2026-01-01", "2026-01-02")
    said = f"slice 1: waits until {tomorrow:%F %T} UTC (the quota is spent)"
    told = f"2 of 2 partitions are incomplete: 2026-01-01: {said}; 2026-01-02: {said}. What waits is fetched by itself"
    assert told in failure_of(failed)
    assert records_of(of_assets, AssetKey(["ingest", "made_up", "items", "harvest"])) == {}


def test_the_planner_asks_for_no_more_windows_before_the_source_may_be_asked_again(
    engine: Engine, of_sensors: DagsterInstance
) -> None:
    loaded, now = loaded_specs(engine), datetime.now(UTC)
    assert keys_of(asked_for(of_sensors, loaded)) == [HARVEST]
    compiled = compile_spec(engine, "demo", "items", Operation.HARVEST, now=now)
    window = next(WindowGrid.of(compiled.spec.window).windows_up_to(START, now))
    plan_window(engine, compiled, window, schedule_instance_id=1, trigger=Trigger.MANUAL, now=now)
    later = now + timedelta(hours=20)
    transact(engine, lambda connection: connection.execute(update(ing_task).values(scheduled_at=later)))
    long_ago = now - timedelta(hours=1)
    transact(engine, lambda connection: connection.execute(update(ing_plan).values(updated_at=long_ago)))
    [skipped] = asked_for(of_sensors, loaded)
    assert isinstance(skipped, SkipReason)
    assert f"demo/items/harvest waits until {later:%F %T} UTC, as its source demands" in str(skipped.skip_message)
    assert UPDATE in loaded
    transact(engine, lambda connection: connection.execute(update(ing_task).values(scheduled_at=long_ago)))
    assert keys_of(asked_for(of_sensors, loaded)) == [HARVEST], "as before"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_command_ends_with_the_window_the_reason_and_the_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with running_server(DemoSettings(records=30)) as url:
        load_demo_sources(engine, url, now=datetime.now(UTC))
        DemoClient(url).make_trouble("too_many", skip=1, path="/works", retry_after="72000")
        arguments = ("demo_crossref", "works", "--from", f"{today - timedelta(days=2):%F}", "--to", f"{today:%F}")
        monkeypatch.setattr(sys, "argv", ["platform", "ingest", "run", *arguments, "--threads", "1"])
        with pytest.raises(SystemExit, match="1"):
            main()
    told = capsys.readouterr()
    waiting = [task for task in rows_of(engine, ing_task) if task.status_code == TaskStatus.QUEUED]
    assert len(waiting) == 1
    assert sorted(row.status_code for row in rows_of(engine, ing_plan)) == [PlanStatus.COMPLETED, PlanStatus.READY]
    assert f"  slice 1: waits until {waiting[0].scheduled_at:%F %T} UTC (" in told.err
    pause = waiting[0].scheduled_at - datetime.now(UTC)
    assert timedelta(hours=18) < pause < timedelta(hours=25), "20 hours, and some more so that not all come at once"
    assert told.err.splitlines()[-1].startswith("what waits is fetched when it is due, by the platform or the next")
    assert len(told.out.splitlines()) == 2

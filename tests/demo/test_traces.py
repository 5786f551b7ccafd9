"""What `platform demo remove` leaves in the Dagster UI: what is a user's, and nothing that is the demo's."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, DagsterRunStatus
from sqlalchemy import Engine, insert

from assets.arrivals.jobs import BatchConfig, arrival_report, model_run
from assets.arrivals.names import batches_of, model_key, table_key
from assets.arrivals.reports import report_arrivals
from platform_defs import dagster_instance
from platform_defs.arrivals.kinds_of_work import MODEL_TAG, TABLES_TAG
from platform_defs.commands.runner import open_instance
from platform_defs.demo import dagster_traces, story
from platform_defs.demo.doors import Api
from platform_defs.demo.shop import Calendar
from platform_defs.demo.state import DemoState
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.arrivals import metrics_task_log
from tests.commands.command_line import RunPlatform
from tests.demo.test_writing import end_executions, new_state, own_event, running, write

MINE = """
models:
  - model_id: mine
    name: Mine
    depends_on: [MY_TABLE, {table}]
    source: platform
    dimensions: [region]
    sql: SELECT ${{dimGroup}}, ${{kpis}} FROM MY_TABLE WHERE op_time = ${{op_time}} GROUP BY ${{dimGroup}}
    kpis: [{{kpi_id: my_kpi, name: Mine, expression: SUM(amount)}}]
    period: day
"""
SHOP = {table_key(name) for name in story.TABLES}


class Written:
    """A demo that was written into an embedded home, and whose arrivals Dagster has been told of."""

    def __init__(self, platform: RunPlatform, home: Path, instance: DagsterInstance, state: DemoState) -> None:
        self.platform, self.home, self.instance = platform, home, instance
        self.calendar = Calendar(state.born)

    def removed(self) -> str:
        code, out, err = self.platform("demo", "remove")
        assert code == 0, err
        return out

    def has_model_of(self, folder: Path, table: str) -> None:
        (folder / "mine.yaml").write_text(MINE.format(table=table))
        assert self.platform("models", "load", str(folder / "mine.yaml"))[0] == 0
        assert self.platform("models", "publish", "mine")[0] == 0

    def partitions(self, period: str | None = "day") -> set[str]:
        return set(self.instance.get_dynamic_partitions(str(batches_of(period).name)))

    def shown_tables(self) -> set[AssetKey]:
        return SHOP.intersection(self.instance.all_asset_keys())


@contextmanager
def api_of(home: Path) -> Iterator[tuple[Engine, Api]]:
    engine = open_engine(f"sqlite:///{home}/platform.db")
    try:
        with running(engine, home) as api:
            yield engine, api
    finally:
        engine.dispose()


@pytest.fixture
def written(run_platform: RunPlatform, tmp_path: Path) -> Iterator[Written]:
    home = tmp_path / "home"
    dagster_instance.prepare(Settings.load())
    with api_of(home) as (engine, api), open_instance(Settings.load()) as instance:
        state = write(engine, api, home, new_state(home))
        end_executions(engine)
        while report_arrivals(instance, engine, state.born - timedelta(days=30)):
            pass
        found = Written(run_platform, home, instance, state)
        assert found.shown_tables() == SHOP
        assert found.partitions() == set(found.calendar.op_times)
        yield found


def test_a_table_that_a_model_of_mine_waits_for_stays_with_its_batches(written: Written, tmp_path: Path) -> None:
    written.has_model_of(tmp_path, story.STORES)
    written.removed()
    assert written.shown_tables() == {table_key(story.STORES)}
    assert written.instance.get_materialized_partitions(table_key(story.STORES)) == set(written.calendar.op_times)
    assert written.partitions() == set(written.calendar.op_times)


def test_a_table_that_my_lineage_reads_stays(written: Written) -> None:
    with api_of(written.home) as (_, api):
        event = own_event(f"main.{story.ORDERS}")
        event["inputs"][0]["namespace"] = "shop"
        api.post("/api/openlineage", [event])
    written.removed()
    assert written.shown_tables() == {table_key(story.ORDERS)}


def test_a_batch_stays_for_which_i_have_materialised_a_model_of_mine(written: Written, tmp_path: Path) -> None:
    """It need not have had an arrival of its own table; and one that failed is there to be tried again."""
    written.has_model_of(tmp_path, "MY_OTHER_TABLE")
    done, failed, *_ = written.calendar.op_times
    written.instance.report_runless_asset_event(AssetMaterialization(model_key("mine"), partition=done))
    task: dict[str, Any] = {"model_id": "mine", "op_time": failed, "status": "FAILED", "start_time": datetime.now(UTC)}
    with api_of(written.home) as (engine, _), engine.begin() as connection:
        connection.execute(insert(metrics_task_log).values(task))
    written.removed()
    assert not written.shown_tables()
    assert written.partitions() == written.partitions(None) == {done, failed}


def test_without_anything_of_mine_no_table_and_no_batch_stays(written: Written) -> None:
    written.removed()
    assert (written.shown_tables(), written.partitions(), written.partitions(None)) == (set(), set(), set())


def test_a_removal_that_was_interrupted_before_dagster_is_completed_by_the_next_one(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(dagster_traces, "remove_traces", is_interrupted)
        written.platform("demo", "remove")
    assert written.partitions(), "the database no longer has the batches, Dagster has them"
    written.removed()
    assert (written.shown_tables(), written.partitions(), written.partitions(None)) == (set(), set(), set())


def begun(instance: DagsterInstance) -> list[str]:
    """Runs that are under way: of a model of the demo, and a report that has not said yet what it reports."""
    batch = BatchConfig(model_id=story.SALES, op_time="20261113")
    model = instance.create_run_for_job(
        model_run,
        run_config={"ops": {"execute_model": {"config": batch.model_dump()}}},
        status=DagsterRunStatus.STARTED,
        tags={MODEL_TAG: story.SALES},
    )
    report = instance.create_run_for_job(arrival_report, status=DagsterRunStatus.STARTED)
    return [model.run_id, report.run_id]


def test_runs_that_are_about_to_end_are_waited_for_and_go_at_the_first_removal(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = {"api": "", "ui": "", "demo_key": None, "pids": {"api": os.getpid()}}
    (written.home / "up.json").write_text(json.dumps(up))
    _, report = begun(written.instance)
    last = table_key(story.RETURNS)

    def end_them(_: float) -> None:
        for run in written.instance.get_runs():
            if not run.is_finished:
                written.instance.add_run_tags(report, {TABLES_TAG: story.RETURNS})
                written.instance.report_runless_asset_event(AssetMaterialization(last, partition="20261113"))
                written.instance.report_run_canceled(run)

    monkeypatch.setattr(dagster_traces, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=end_them))
    assert "not ended" not in written.removed()
    assert not written.instance.get_runs()
    assert not written.shown_tables(), "also what they told Dagster at last"


def test_runs_that_nobody_ends_while_nothing_is_running_are_said_to_be_left(written: Written) -> None:
    begun(written.instance)
    assert "2 runs have not ended yet" in written.removed()
    for run in written.instance.get_runs():
        written.instance.add_run_tags(run.run_id, {TABLES_TAG: story.RETURNS})
        written.instance.report_run_canceled(run)
    assert "not ended" not in written.removed()
    assert not written.instance.get_runs()

"""Sensors that always exist note how their ticks ended, so that one that stands still is seen without Dagster."""

from collections.abc import Callable
from pathlib import Path

import pytest
from dagster import DagsterInstance, SensorEvaluationContext, build_sensor_context
from sqlalchemy import text

from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.upgrade import upgrade_stores
from platform_defs.work.sensor_ticks import last_ticks
from sensors.chain_lineage import chain_lineage
from sensors.chains import chains
from sensors.ingest import UPKEEP, keep_ingest_going
from sensors.lineage import lineage_recovery
from sensors.lineage_tables import lineage_tables

SENSORS: list[tuple[str, Callable[[SensorEvaluationContext], object], str]] = [
    (chains.name, chains, "job_run"),
    (chain_lineage.name, chain_lineage, "tenants"),
    (UPKEEP, keep_ingest_going, "ing_task"),
    (lineage_recovery.name, lineage_recovery, "lineage_events"),
    (lineage_tables.name, lineage_tables, "lineage_table_seen"),
]


@pytest.mark.parametrize(("name", "sensor", "table"), SENSORS)
def test_a_tick_is_noted_whether_it_went_well_or_failed(
    name: str,
    sensor: Callable[[SensorEvaluationContext], object],
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    settings = Settings.load()
    upgrade_stores(settings)
    engine = open_engine(settings.database_url)
    try:
        with DagsterInstance.ephemeral() as instance, build_sensor_context(instance=instance) as context:
            sensor(context)
            (good,) = last_ticks(engine)
            assert (good.name, good.failed_at, good.error) == (name, None, None)
            with engine.begin() as connection:
                connection.execute(text(f"ALTER TABLE {table} RENAME TO {table}_away"))
            with pytest.raises(Exception, match=table):
                sensor(context)
            (failed,) = last_ticks(engine)
            assert failed.succeeded_at == good.succeeded_at
            assert failed.error == f"no such table: {table}"
    finally:
        engine.dispose()

"""Reports to Dagster: which arrivals and executions are unreported, and that a reported one stays reported."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, insert, select, text

from platform_defs.arrivals.dagster_reports import (
    ArrivalReport,
    mark_arrivals_reported,
    mark_executions_reported,
    unreported_arrivals,
    unreported_executions,
)
from platform_defs.arrivals.executions.model_run import ExecutionResult
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_task_log
from tests.arrivals.world import add_model, write_arrival

NOW = datetime.now(UTC)
SINCE = NOW - timedelta(days=7)


def _unreported(engine: Engine, limit: int = 100) -> list[ArrivalReport]:
    return read(engine, lambda connection: unreported_arrivals(connection, SINCE, limit))


def _unreported_tables(engine: Engine) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(found.table, found.op_time, found.dependencies) for found in _unreported(engine)]


def _mark(engine: Engine, reported: list[ArrivalReport]) -> None:
    transact(engine, lambda connection: mark_arrivals_reported(connection, reported))


def test_an_arrival_is_reported_on_every_dependency_it_meets_and_only_where_one_is_published(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B_yyyymmdd"])
    add_model(engine, "N", ["A", "B_20251219"])
    add_model(engine, "UNPUBLISHED", ["C"], published=False)
    for table in ("A", "B_20251219", "C", "NOBODY", "a"):
        write_arrival(engine, table, "20251219")
    write_arrival(engine, "A", "20251201", NOW - timedelta(days=8))
    assert _unreported_tables(engine) == [
        ("A", "20251219", ("A",)),
        ("B_20251219", "20251219", ("B_20251219", "B_yyyymmdd")),
    ]


def test_a_batch_that_an_etl_job_wrote_with_dashes_is_reported_as_the_one_of_its_digits(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B_yyyymmdd"])
    write_arrival(engine, "A", "20251219")
    write_arrival(engine, "A", "2025-12-19")
    write_arrival(engine, "B_20251219", "2025-12-19")
    assert _unreported_tables(engine) == [
        ("A", "20251219", ("A",)),
        ("A", "20251219", ("A",)),
        ("B_20251219", "20251219", ("B_yyyymmdd",)),
    ]
    _mark(engine, _unreported(engine))
    assert _unreported(engine) == []


def test_what_was_reported_is_reported_again_only_when_it_arrives_again(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    write_arrival(engine, "A", "20251219", NOW)
    _mark(engine, _unreported(engine))
    assert _unreported(engine) == []
    write_arrival(engine, "A", "20251219", NOW + timedelta(seconds=1))
    again = _unreported(engine)
    assert [found.arrival_time for found in again] == [NOW + timedelta(seconds=1)]
    # The table arrives once more while its first arrival is being reported.
    write_arrival(engine, "A", "20251219", NOW + timedelta(seconds=2))
    _mark(engine, again)
    assert [found.arrival_time for found in _unreported(engine)] == [NOW + timedelta(seconds=2)]


def test_the_oldest_are_reported_first_and_others_wait_for_the_next_time(engine: Engine) -> None:
    add_model(engine, "M", ["A", "A_yyyymmdd"])
    add_model(engine, "N", ["A"])
    for day in range(10, 15):
        write_arrival(engine, "A", f"202512{day}")
    first = _unreported(engine, 3)
    assert [found.op_time for found in first] == ["20251210", "20251211", "20251212"]
    _mark(engine, first)
    assert [found.op_time for found in _unreported(engine, 3)] == ["20251213", "20251214"]


@pytest.mark.parametrize("written", ["2099-12-19 08:00:00", "2099-12-19 08:00:00.5"])
def test_a_time_as_an_etl_job_spells_it_is_reported_once(engine: Engine, written: str) -> None:
    add_model(engine, "M", ["A"])
    with engine.begin() as connection:
        statement = "INSERT INTO metrics_etl_log (table_name, op_time, arrival_time) VALUES ('A', '20991219', :written)"
        connection.execute(text(statement), {"written": written})
    _mark(engine, _unreported(engine))
    assert _unreported(engine) == []
    log = metrics_etl_log.c
    row = read(engine, lambda connection: connection.execute(select(log.arrival_time, log.reported_time)).one())
    assert row[0] == row[1]


def test_executions_that_nobody_reported_are_found_the_oldest_first_unless_a_later_one_succeeded(
    engine: Engine,
) -> None:
    minute = NOW - timedelta(minutes=1)
    rows = [
        ("M", "20251201", "SUCCESS", minute, None),
        ("M", "20251202", "SUCCESS", NOW, None),  # its run is about to tell
        ("M", "20251203", "FAILED", minute, None),
        ("M", "20251204", "SUCCESS", minute, minute),
        ("M", "20251205", "SUCCESS", NOW - timedelta(days=8), None),
        ("M", "20251206", "SUCCESS", minute, None),
        ("M", "20251206", "SUCCESS", minute, minute),
        ("M", "20251207", "SUCCESS", minute, None),
        ("M", "20251207", "FAILED", minute, None),
        ("N", "20251201", "SUCCESS", minute, None),
    ]
    names = ("model_id", "op_time", "status", "end_time", "reported_at")
    given = [
        dict(zip(names, row, strict=True)) | {"compute_count": 2, "storage_count": 4, "missing_tables": None}
        for row in rows
    ]
    given[0]["missing_tables"] = ["B"]
    transact(engine, lambda connection: connection.execute(insert(metrics_task_log), given))

    def waiting(limit: int) -> list[ExecutionResult]:
        until = NOW - timedelta(seconds=30)
        return read(engine, lambda connection: unreported_executions(connection, SINCE, until, limit))

    first = waiting(2)
    assert [(ended.model_id, ended.op_time, ended.missing_tables) for ended in first] == [
        ("M", "20251201", ["B"]),
        ("M", "20251207", []),
    ]
    assert {(ended.counts.computed, ended.counts.stored) for ended in first} == {(2, 4)}
    transact(engine, lambda connection: mark_executions_reported(connection, [ended.task_id for ended in first], NOW))
    assert [(ended.model_id, ended.op_time) for ended in waiting(2)] == [("N", "20251201")]

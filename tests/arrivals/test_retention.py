"""Retention: old records are deleted in bounded transactions, and nothing that is still needed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterInstance
from sqlalchemy import Engine, Table, event, func, insert, select

from platform_defs.arrivals.retention import ForgottenCounts, forget_old_rows
from platform_defs.definitions import defs
from platform_defs.store import deletion
from platform_defs.store.tables.arrivals import (
    metrics_etl_log,
    metrics_kpi_value,
    metrics_model_input,
    metrics_model_running,
    metrics_task_log,
)
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery
from platform_defs.store.tables.work import work
from tests.arrivals.conftest import Home

NOW = datetime(2026, 3, 31, 3, 11, tzinfo=UTC)
OLD, RECENT = NOW - timedelta(days=90, seconds=1), NOW - timedelta(days=89)


def insert_rows(engine: Engine, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    columns = dict.fromkeys(name for row in rows for name in row)
    with engine.begin() as connection:
        connection.execute(insert(table), [{name: row.get(name) for name in columns} for row in rows])


def remaining_ids(engine: Engine, table: Table, column: str = "id") -> list[Any]:
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c[column]).order_by(table.c.id)))


def delivery_row(number: int, status: str, finished: datetime | None) -> dict[str, Any]:
    return {
        "id": number,
        "webhook_id": f"msg_{number}",
        "task_id": number,
        "group_hash": "0" * 64,
        "model_id": "M",
        "op_time": "20251219",
        "callback_url": "https://hooks.example/",
        "subscription_ids": [1],
        "retry_num": 0,
        "body": "{}",
        "event_time": OLD,
        "status": status,
        "attempts": 1,
        "next_attempt_at": OLD if status == "PENDING" else None,
        "finished_at": finished,
    }


def task_row(number: int, status: str, ended: datetime | None, **more: Any) -> dict[str, Any]:
    row = {"id": number, "model_id": f"M{number}", "op_time": "20251219", "status": status, "attempt": 1}
    return row | {"start_time": OLD, "end_time": ended} | more


def work_row(number: int, status: str, finished: datetime | None) -> dict[str, Any]:
    row = {"id": number, "kind": "model_run", "payload": {}, "run_id": f"{number:036}", "status": status}
    return row | {"priority": 100, "attempts": 1, "created_at": OLD, "finished_at": finished}


def read_version(model_id: str, table: str, arrival: datetime) -> dict[str, Any]:
    return {"model_id": model_id, "op_time": "20251219", "dependency_table_name": table, "arrival_time": arrival}


def test_what_ended_long_ago_is_forgotten_and_what_is_recent_or_open_stays(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "ROWS_PER_TRANSACTION", 2)
    states = [("DELIVERED", OLD), ("DEAD", OLD), ("DELIVERED", OLD), ("PENDING", None), ("DEAD", RECENT)]
    insert_rows(engine, metrics_webhook_delivery, [delivery_row(n, *state) for n, state in enumerate(states, 1)])
    attempts = [
        {"delivery_id": n, "attempt_no": a, "started_at": OLD, "outcome": "FAILED"} for n in range(1, 6) for a in (1, 2)
    ]
    insert_rows(engine, metrics_webhook_attempt, attempts)
    ended = [
        task_row(1, "SUCCESS", OLD),
        task_row(2, "FAILED", OLD),
        task_row(5, "SUCCESS", OLD),
        task_row(6, "SUCCESS", RECENT),
    ]
    running = [task_row(3, "RUNNING", None, work_id=3), task_row(4, "RUNNING", None, run_id=f"{4:036}")]
    insert_rows(engine, metrics_task_log, ended + running)
    guard = [{"model_id": f"M{n}", "op_time": "20251219", "task_id": n} for n in (3, 4)]
    insert_rows(engine, metrics_model_running, guard)
    finished = [work_row(1, "SUCCEEDED", OLD), work_row(2, "CANCELED", OLD), work_row(5, "FAILED", OLD)]
    needed = [work_row(3, "FAILED", OLD), work_row(4, "FAILED", OLD)]
    open_or_recent = [work_row(6, "RUNNING", None), work_row(7, "QUEUED", None), work_row(8, "FAILED", RECENT)]
    insert_rows(engine, work, finished + needed + open_or_recent)
    inputs = [
        read_version("OLD", "A", OLD),
        read_version("OLD", "B", OLD),
        read_version("MIXED", "A", OLD),
        read_version("MIXED", "B", RECENT),
    ]
    insert_rows(engine, metrics_model_input, inputs)
    insert_rows(engine, metrics_etl_log, [{"table_name": "A", "op_time": "20251219", "arrival_time": OLD}])
    value = {
        "kpi_id": "K",
        "op_time": "20251219",
        "dims": {},
        "dims_hash": "0" * 64,
        "kpi_value": 1.0,
        "created_at": OLD,
    }
    insert_rows(engine, metrics_kpi_value, [value])

    assert forget_old_rows(engine, days=0, lookback_days=7, at=NOW) == ForgottenCounts()
    assert forget_old_rows(engine, days=90, lookback_days=7, at=NOW) == ForgottenCounts(
        deliveries=3, tasks=3, inputs=2, work=3
    )
    assert forget_old_rows(engine, days=90, lookback_days=7, at=NOW) == ForgottenCounts()

    assert remaining_ids(engine, metrics_webhook_delivery) == [4, 5]
    assert sorted(remaining_ids(engine, metrics_webhook_attempt, "delivery_id")) == [4, 4, 5, 5]
    assert remaining_ids(engine, metrics_task_log) == [3, 4, 6]
    assert remaining_ids(engine, work) == [3, 4, 6, 7, 8]
    assert remaining_ids(engine, metrics_model_input, "model_id") == ["MIXED", "MIXED"]
    assert len(remaining_ids(engine, metrics_etl_log)) == len(remaining_ids(engine, metrics_kpi_value)) == 1


def test_a_batch_with_and_without_dashes_is_forgotten_as_a_whole(engine: Engine) -> None:
    kept = [read_version("KEPT", "A", OLD) | {"op_time": "2025-12-19"}, read_version("KEPT", "B", RECENT)]
    kept += [read_version("KEPT2", "A", OLD), read_version("KEPT2", "B", RECENT) | {"op_time": "2025-12-19"}]
    old = [read_version("OLD", "A", OLD) | {"op_time": "2025-12-19"}, read_version("OLD", "B", OLD)]
    insert_rows(engine, metrics_model_input, [*old, *kept])
    assert forget_old_rows(engine, days=90, lookback_days=7, at=NOW).inputs == 2
    assert set(remaining_ids(engine, metrics_model_input, "model_id")) == {"KEPT", "KEPT2"}


def test_what_batches_read_stays_for_as_long_as_the_sensor_looks_back(engine: Engine) -> None:
    rows = [read_version(f"M{days}", "A", NOW - timedelta(days=days)) for days in (400, 366, 365, 100, 1)]
    insert_rows(engine, metrics_model_input, rows)
    assert forget_old_rows(engine, days=90, lookback_days=365, at=NOW + timedelta(seconds=1)).inputs == 2
    assert remaining_ids(engine, metrics_model_input, "model_id") == ["M365", "M100", "M1"]


def test_the_newest_row_stays_so_that_its_id_is_never_given_to_another(engine: Engine) -> None:
    insert_rows(engine, metrics_task_log, [task_row(1, "SUCCESS", OLD), task_row(2, "SUCCESS", OLD)])
    insert_rows(engine, work, [work_row(1, "SUCCEEDED", OLD), work_row(2, "SUCCEEDED", OLD)])
    assert forget_old_rows(engine, days=90, lookback_days=7, at=NOW) == ForgottenCounts(tasks=1, work=1)
    assert remaining_ids(engine, metrics_task_log) == remaining_ids(engine, work) == [2]


def test_a_transaction_deletes_no_more_than_a_batch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "ROWS_PER_TRANSACTION", 10)
    insert_rows(engine, metrics_task_log, [task_row(number, "SUCCESS", OLD) for number in range(1, 27)])
    transactions: list[int] = []

    def note(connection: Any, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("DELETE"):
            transactions[-1] += cursor.rowcount

    def begun(connection: Any) -> None:
        transactions.append(0)

    event.listen(engine, "begin", begun)
    event.listen(engine, "after_cursor_execute", note)
    try:
        assert forget_old_rows(engine, days=90, lookback_days=7, at=NOW).tasks == 25
    finally:
        event.remove(engine, "begin", begun)
        event.remove(engine, "after_cursor_execute", note)
    assert [deleted for deleted in transactions if deleted] == [10, 10, 5]


def test_the_job_takes_the_days_from_the_settings(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = datetime.now(UTC) - timedelta(days=10)
    insert_rows(
        home.engine, metrics_task_log, [task_row(1, "SUCCESS", ended), task_row(2, "SUCCESS", datetime.now(UTC))]
    )

    def tasks_after_the_job() -> int:
        with DagsterInstance.ephemeral() as instance:
            assert defs.resolve_job_def("arrivals_retention").execute_in_process(instance=instance).success
        with home.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(metrics_task_log)).scalar_one()

    assert tasks_after_the_job() == 2
    monkeypatch.setenv("PLATFORM_ARRIVALS_RETENTION_DAYS", "9")
    assert tasks_after_the_job() == 1

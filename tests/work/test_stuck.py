"""What counts as stuck, what does not, and where it is shown, on every store."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update

from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.settings import Settings
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_model, metrics_task_log
from platform_defs.store.tables.work import runners as runner_rows
from platform_defs.store.tables.work import sensor_ticks
from platform_defs.store.tables.work import work as table
from platform_defs.stuck import find_stuck
from platform_defs.work import leases, rows, runners
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import Status
from platform_defs.work.sensor_ticks import note_tick
from tests.api.serving import serve_api
from tests.arrivals.world import add_model, logged_tasks
from tests.work.living import living_runner

OP = "20251219"
MINUTES_AGO = timedelta(minutes=3)


def stuck(engine: Engine) -> list[tuple[str, str]]:
    """Kind and problem, without what to do."""
    return [(one.kind, one.problem.partition(";")[0]) for one in find_stuck(engine, Settings())]


def set_row(engine: Engine, row: rows.Work, **values: Any) -> None:
    transact(engine, lambda connection: connection.execute(update(table).where(table.c.id == row.id).values(values)))


def old_row(engine: Engine, kind: str = "selfcheck", **values: Any) -> rows.Work:
    row = rows.enqueue(engine, kind, {}, **values)
    set_row(engine, row, created_at=datetime.now(UTC) - MINUTES_AGO)
    return row


def test_a_row_that_waits_although_a_slot_is_free_is_stuck(engine: Engine) -> None:
    row = old_row(engine)
    assert stuck(engine) == []  # no runner, which is shown elsewhere
    living_runner(engine, busy=6)
    assert stuck(engine) == []  # the other slots are for arrivals
    living_runner(engine, busy=5)
    assert stuck(engine) == [("queue", f"row of work {row.id} (selfcheck) waits although a slot is free")]


def test_rows_that_wait_for_their_time_for_their_source_or_since_a_moment_are_not_stuck(engine: Engine) -> None:
    living_runner(engine)
    rows.enqueue(engine, "selfcheck", {})
    old_row(engine, not_before=datetime.now(UTC) - timedelta(minutes=1))
    for _ in range(5):
        old_row(engine, "model_run", resource="source:erp")
    claimed = leases.claim(engine, ProcessId.current().full_name, 4, only=["model_run"])
    for row in claimed:
        leases.mark_started(engine, ProcessId.current().full_name, row.id, ProcessId.current())
    assert stuck(engine) == []
    rows.finish(engine, claimed[0].id, Status.SUCCEEDED)
    assert [kind for kind, _ in stuck(engine)] == ["queue"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"leased_until": datetime.now(UTC) - MINUTES_AGO}, "has no lease"),
        ({"pid": None, "claimed_at": datetime.now(UTC) - MINUTES_AGO}, "has no process"),
        (
            {"lease_owner": leases.DAGSTER, "leased_until": None, "heartbeat_at": datetime.now(UTC) - 2 * MINUTES_AGO},
            "has no open run",
        ),
    ],
)
def test_a_running_row_without_lease_process_or_open_run_is_stuck(
    engine: Engine, values: dict[str, Any], problem: str
) -> None:
    row = old_row(engine)
    leases.claim(engine, "elsewhere:1:2", 1)
    leases.mark_started(engine, "elsewhere:1:2", row.id, ProcessId.current())
    assert stuck(engine) == []
    set_row(engine, row, **values)
    assert stuck(engine) == [("row", f"row of work {row.id} (selfcheck) {problem}")]


def _row_closed(engine: Engine, task: Any) -> None:
    rows.finish(engine, task.work_id, Status.FAILED)
    set_row(engine, rows.get(engine, task.work_id), finished_at=datetime.now(UTC) - MINUTES_AGO)


def _beyond_the_timeout_of_its_model(engine: Engine, task: Any) -> None:
    lifecycle.start_queued_execution(engine, ("M", OP), task.work_id, task.run_id, datetime.now(UTC))
    began = update(metrics_task_log).values(start_time=datetime.now(UTC) - MINUTES_AGO)
    transact(engine, lambda connection: connection.execute(began))
    assert stuck(engine) == []
    transact(engine, lambda connection: connection.execute(update(metrics_model).values(timeout_s=30)))


@pytest.mark.parametrize(
    ("happens", "problem"),
    [
        (_row_closed, "is RUNNING, but its row of work is closed"),
        (_beyond_the_timeout_of_its_model, "runs longer than its 30 s"),
    ],
)
def test_a_task_whose_row_is_closed_or_that_takes_too_long_is_stuck(
    engine: Engine, happens: Callable[[Engine, Any], None], problem: str
) -> None:
    add_model(engine, "M", ["A"])
    record_arrival(engine, Arrival("A", OP))
    [task] = logged_tasks(engine, "M", OP)
    began = update(metrics_task_log).values(start_time=datetime.now(UTC) - MINUTES_AGO)
    transact(engine, lambda connection: connection.execute(began))
    assert stuck(engine) == []
    happens(engine, task)
    assert stuck(engine) == [("task", f"task {task.id} {problem}")]


def test_a_sensor_without_a_good_tick_is_stuck_and_says_why(engine: Engine) -> None:
    note_tick(engine, "arrivals", None)
    note_tick(engine, "arrivals", "could not begin what is due")
    assert stuck(engine) == []
    then = update(sensor_ticks).values(succeeded_at=datetime.now(UTC) - MINUTES_AGO)
    transact(engine, lambda connection: connection.execute(then))
    assert stuck(engine) == [("sensor", "sensor arrivals had no good tick: could not begin what is due")]
    note_tick(engine, "arrivals", None)
    assert stuck(engine) == []


def test_a_sensor_that_rested_while_the_platform_was_down_is_not_stuck_at_the_next_start(engine: Engine) -> None:
    note_tick(engine, "arrivals", None)
    then = update(sensor_ticks).values(succeeded_at=datetime.now(UTC) - MINUTES_AGO)
    transact(engine, lambda connection: connection.execute(then))
    living_runner(engine)
    assert stuck(engine) == []
    earlier = update(runner_rows).values(started_at=datetime.now(UTC) - MINUTES_AGO)
    transact(engine, lambda connection: connection.execute(earlier))
    assert stuck(engine) == [("sensor", "sensor arrivals had no good tick")]


def test_a_runner_whose_process_lives_without_a_heartbeat_hangs_and_readyz_says_how_to_end_it(engine: Engine) -> None:
    living_runner(engine)
    silent_since = update(runner_rows).values(heartbeat_at=datetime.now(UTC) - timedelta(seconds=30))
    transact(engine, lambda connection: connection.execute(silent_since))
    with serve_api(engine) as api:
        answer = api.client.get("/readyz").json()
        assert answer["status"] == "ready", "for a while the runs that start cold are enough"
        assert f"`kill -9 {os.getpid()}` ends it" in answer["checks"]["runner"]
        assert answer["checks"]["runner"].endswith(
            "Until then runs start cold, and rows of work wait for the recovery sensor"
        )
        transact(
            engine,
            lambda connection: connection.execute(silent_since.values(heartbeat_at=datetime.now(UTC) - MINUTES_AGO)),
        )
        answer = api.client.get("/readyz").json()
        assert answer["status"] == "degraded"
        assert f"`kill -9 {os.getpid()}` ends it" in answer["checks"]["work"]
        assert 'platform_stuck{kind="runner"} 1.0' in api.client.get("/metrics").text
        living_runner(engine)
        assert api.client.get("/readyz").json()["checks"]["work"] == "ok"
    runners.record_stop(engine, ProcessId.current())
    transact(engine, lambda connection: connection.execute(silent_since))
    assert stuck(engine) == [], "one that was stopped does not hang"


def test_readyz_stays_200_and_says_degraded_and_the_metric_counts(engine: Engine) -> None:
    row = old_row(engine)
    leases.claim(engine, "elsewhere:1:2", 1)
    with serve_api(engine) as api:
        assert api.client.get("/readyz").json()["status"] == "ready"
        set_row(engine, row, leased_until=datetime.now(UTC) - MINUTES_AGO)
        answer = api.client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert f"`platform runner release {row.id}` frees it" in answer.json()["checks"]["work"]
        metrics = api.client.get("/metrics").text
    assert 'platform_stuck{kind="row"} 1.0' in metrics
    assert 'platform_stuck{kind="task"} 0.0' in metrics

"""A schedule whose evaluation fails is evaluated again for the same time, by Dagster's own scheduler."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.scheduler.scheduler import DagsterDaemonScheduler
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._scheduler.scheduler import launch_scheduled_runs

from platform_defs import dagster_instance
from platform_defs.settings import Settings

SOURCE = """
from pathlib import Path
from dagster import DefaultScheduleStatus, Definitions, SkipReason, job, op, schedule

MENDED = Path({mended!r})

@op
def nothing(): ...

@job
def nothing_much():
    nothing()

@schedule(cron_schedule="0 * * * *", job=nothing_much, default_status=DefaultScheduleStatus.RUNNING)
def hourly(context):
    if not MENDED.exists():
        raise ConnectionError("the database does not answer")
    return SkipReason(f"evaluated for {{context.scheduled_execution_time:%H:%M}}")

defs = Definitions(jobs=[nothing_much], schedules=[hourly])
"""
# not long ago: a skipped tick that is older than a day is deleted at once
HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def test_a_time_at_which_the_evaluation_of_a_schedule_failed_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))
    settings = Settings.load()
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    mended, code = tmp_path / "mended", tmp_path / "code.py"
    code.write_text(SOURCE.format(mended=str(mended)))
    target = PythonFileTarget(str(code), None, str(tmp_path), "code")
    with (
        DagsterInstance.get() as instance,
        create_test_daemon_workspace_context(target, instance) as context,
    ):
        scheduler = instance.scheduler
        assert isinstance(scheduler, DagsterDaemonScheduler)
        iteration_times: dict[str, Any] = {}

        def look(at: datetime) -> None:
            list(
                launch_scheduled_runs(
                    context,
                    logging.getLogger(__name__),
                    at,
                    iteration_times,
                    scheduler_run_futures={},
                    max_catchup_runs=scheduler.max_catchup_runs,
                    max_tick_retries=scheduler.max_tick_retries,
                )
            )

        look(HOUR - timedelta(minutes=1))  # the schedule is running from now on
        for seconds in (0, 5, 10):  # the database does not answer
            look(HOUR + timedelta(seconds=seconds))
        mended.touch()
        look(HOUR + timedelta(seconds=15))
        [state] = instance.all_instigator_state()
        [tick] = instance.get_ticks(state.instigator_origin_id, state.selector_id)
    assert tick.status is TickStatus.SKIPPED
    assert tick.skip_reason == f"evaluated for {HOUR:%H:%M}"

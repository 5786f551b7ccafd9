"""What a person sees of the children: on a terminal not every tick, in a pipe all of it."""

import io

import pytest

from platform_defs.settings import Settings
from platform_defs.supervisor.output import Output
from platform_defs.supervisor.processes import child_environment

PREFIX = "2026-11-17 13:23:26 +0000 - dagster.daemon"
IDLE = [
    f"{PREFIX}.SensorDaemon - INFO - Checking for new runs for sensor: ingest_upkeep",
    f"{PREFIX}.SensorDaemon - INFO - Sensor work_recovery skipped: a runner is alive and takes the rows itself",
    f"{PREFIX}.MonitoringDaemon - INFO - Collected 2 runs for monitoring",
    f"{PREFIX}.MonitoringDaemon - INFO - Checking run d61fb465-fe86-4800-9b86-a270c576004f",
    f"\x1b[32m{PREFIX}.SchedulerDaemon\x1b[0m - INFO - Checking for new runs for the following schedules: a, b",
]
WORTH_A_LINE = [
    f"{PREFIX}.SensorDaemon - INFO - Completed launch of run d61fb465 for ingest_planner",
    f"{PREFIX}.SensorDaemon - ERROR - Sensor daemon caught an error for sensor arrivals",
    "INFO definitions b1e12e45121a are loaded in fork server 29127",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_ticks_that_did_nothing_are_silent_on_a_terminal_and_written_elsewhere(stream: io.StringIO) -> None:
    output = Output(["daemon"], stream)
    for line in IDLE + WORTH_A_LINE:
        output.line("daemon", line)
    shown = len(stream.getvalue().splitlines())
    assert shown == (len(WORTH_A_LINE) if stream.isatty() else len(IDLE + WORTH_A_LINE))
    assert len(output.tail("daemon")) == len(IDLE + WORTH_A_LINE), "the report of a failed start has every line"


def test_the_api_writes_for_people_where_the_supervisor_has_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert child_environment(Settings.load(), human_logs=True)["PLATFORM_LOG_FORMAT"] == "human"
    assert "PLATFORM_LOG_FORMAT" not in child_environment(Settings.load(), human_logs=False)
    monkeypatch.setenv("PLATFORM_LOG_FORMAT", "json")
    assert child_environment(Settings.load(), human_logs=True)["PLATFORM_LOG_FORMAT"] == "json"

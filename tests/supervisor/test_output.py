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
    f"{PREFIX} - INFO - Instance is configured with the following daemons: ['AssetDaemon', 'SensorDaemon']",
    f"{PREFIX}.SensorDaemon - INFO - Launching run for ingest_planner",
    f"{PREFIX}.SensorDaemon - WARNING - Moving dangling STARTED tick 55 into SKIPPED",
    f"{PREFIX}.SensorDaemon - INFO - No run requests returned for lineage_observations, skipping",
    f'{PREFIX}.SensorDaemon - INFO - Skipping 1 run for sensor work_recovery already completed with run keys: ["a"]',
    f'{PREFIX}.SensorDaemon - INFO - Skipping 2 runs for sensor planner already completed with run keys: ["a", "b"]',
    f"\x1b[32m{PREFIX}.SchedulerDaemon\x1b[0m - INFO - Checking for new runs for the following schedules: a, b",
]
WORTH_A_LINE = [
    f"{PREFIX}.SensorDaemon - INFO - Completed launch of run d61fb465 for ingest_planner",
    f"{PREFIX}.SensorDaemon - ERROR - Sensor daemon caught an error for sensor arrivals",
    "INFO new runs use definitions b1e12e45121a, loaded in fork server 29127",
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


OF_DEMO = [
    "19:23:14 POST /api/v1/chains 200 ms=98.4 principal=demo",
    "19:23:19 webhook delivered webhookId=msg_e0be delivery=1 attempt=1 httpStatus=200 latencyMs=28",
    "19:23:23 run started run_id=4893e023 chain_id=75479916 actor=demo",
]
NOT_OF_DEMO = [
    "19:23:14 POST /api/v1/chains 503 ms=98.4 principal=demo",
    "19:23:14 POST /api/v1/chains 200 ms=98.4 principal=mine",
    "19:23:14 WARNING webhook failed webhookId=msg_e0be",
]


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_the_requests_that_write_the_demo_are_not_shown_on_a_terminal(stream: io.StringIO) -> None:
    output = Output(["api"], stream)
    output.writing_demo(True)
    for line in OF_DEMO + NOT_OF_DEMO:
        output.line("api", line)
    shown = NOT_OF_DEMO if stream.isatty() else OF_DEMO + NOT_OF_DEMO
    assert [line.partition("| ")[2].removeprefix("\x1b[0m") for line in stream.getvalue().splitlines()] == shown
    output.writing_demo(False)
    output.line("api", OF_DEMO[0])
    assert stream.getvalue().endswith(f"{OF_DEMO[0]}\n"), "requests of a person with that key are shown"


RELOADED = [
    "2026-11-17 22:58:19 +0000 - dagster.code_server - INFO - Starting Dagster code server for module m in process 2",
    "2026-11-17 22:58:46 +0000 - dagster.code_server - INFO - Started Dagster code server for module m in process 2",
    "2026-11-17 22:58:46 +0000 - dagster.code_server - INFO - Stopping server once all current RPC calls terminate",
    "2026-11-17 22:58:46 +0000 - dagster.code_server - INFO - Shutting down Dagster code server in process 1",
    "2026-11-17 22:58:47 +0000 - dagster-webserver - INFO - Received LocationStateChangeEventType.LOCATION_UPDATED"
    " event for location platform, refreshing",
    "INFO the code server has loaded the new definitions",
    f"{PREFIX}.SensorDaemon - INFO - Creating new run for ingest_planner",
    "22:58:31 webhook delivered webhookId=msg_4b delivery=10 attempt=1 httpStatus=200 latencyMs=19",
]
AFTERWARDS = [
    *WORTH_A_LINE,
    "2026-11-17 22:58:47 +0000 - dagster.code_server - ERROR - Error loading code location",
    "22:58:31 webhook delivered webhookId=msg_4b delivery=10 attempt=3 httpStatus=200 latencyMs=19",
]


def test_once_ready_a_terminal_shows_one_line_of_what_takes_several_steps() -> None:
    stream = Terminal()
    output = Output(["all"], stream)
    output.line("all", RELOADED[0])
    assert "Starting Dagster code server" in stream.getvalue(), "a start that takes long says what it does"
    output.ready("Ready", [("API", "http://127.0.0.1:8000")])
    stream.truncate(stream.seek(0))
    for line in RELOADED + AFTERWARDS:
        output.line("all", line)
    assert [line.partition("| ")[2].removeprefix("\x1b[0m") for line in stream.getvalue().splitlines()] == AFTERWARDS


def test_what_dagster_says_at_a_stop_is_not_shown_to_the_person_who_asked_for_it() -> None:
    stream = Terminal()
    output = Output(["code-server"], stream)
    output.stopping()
    for line in (
        "",
        "Aborted!",
        "2026-11-17 19:48:51 +0000 - dagster.code_server - INFO - Code proxy server was interrupted",
        "19:48:51 stopping: 0 requests in progress",
        "19:48:51 stopping: 2 requests in progress",
        "Exception: something broke",
    ):
        output.line("code-server", line)
    assert [line.rpartition("\x1b[0m")[2] for line in stream.getvalue().splitlines()] == [
        "stopping, which takes some seconds; a second Ctrl-C does not wait",
        "19:48:51 stopping: 2 requests in progress",
        "Exception: something broke",
    ]


def test_the_api_writes_for_people_where_the_supervisor_has_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert child_environment(Settings.load(), human_logs=True)["PLATFORM_LOG_FORMAT"] == "human"
    assert "PLATFORM_LOG_FORMAT" not in child_environment(Settings.load(), human_logs=False)
    monkeypatch.setenv("PLATFORM_LOG_FORMAT", "json")
    assert child_environment(Settings.load(), human_logs=True)["PLATFORM_LOG_FORMAT"] == "json"

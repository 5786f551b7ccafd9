"""The house stands: what a newcomer sees after `platform up`, and that nothing is left after it."""

import signal

import pytest
from sqlalchemy.engine import make_url

from platform_defs.supervisor.output import Output
from tests import loopback
from tests.e2e.lives import Lives
from tests.e2e.platform_up import LOCATION, PATIENTLY, PlatformUp
from tests.lineage_events import run_event
from tests.supervisor.test_output import Terminal
from tests.waiting import until


def test_the_platform_says_that_it_is_ready(platform: PlatformUp) -> None:
    def checks() -> dict[str, str] | None:
        """Unless one of them is not "ok", as on a machine that keeps it waiting for a moment."""
        answer = loopback.get(f"{platform.up['api']}/readyz")
        found: dict[str, str] = answer.json()["checks"]
        return found if answer.status_code == 200 and set(found.values()) == {"ok"} else None

    found = until("all parts to be ready", checks) or {}
    assert {"database", "migrations", "graph"} <= found.keys()


def test_the_ui_has_loaded_the_code_location_and_sees_a_healthy_daemon(platform: PlatformUp) -> None:
    entries = platform.graphql(
        """{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus
               locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
    )["workspaceOrError"]["locationEntries"]
    assert [(entry["name"], entry["loadStatus"]) for entry in entries] == [(LOCATION, "LOADED")]
    assert entries[0]["locationOrLoadError"]["__typename"] == "RepositoryLocation", entries
    daemons = platform.graphql("{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }")
    required = [d for d in daemons["instance"]["daemonHealth"]["allDaemonStatuses"] if d["required"]]
    assert required
    assert all(daemon["healthy"] for daemon in required), required


def test_databases_that_had_to_be_created_are_named(platform: PlatformUp) -> None:
    url = platform.environment.get("PLATFORM_DB_URL")
    created = f"{platform.home}/platform.db" if url is None else f"{make_url(url).database}_dagster"
    assert f"created database {created}" in platform.lines


def test_packages_in_the_working_directory_do_not_shadow_ours(platform: PlatformUp) -> None:
    assert (platform.folder / "assets" / "__init__.py").exists()
    assert "the assets of the working directory" not in platform.log
    # a job that only the tree has which PYTHONPATH names
    assert platform.until_status(platform.launch("two_ops"), "SUCCESS", "FAILURE")["status"] == "SUCCESS"


def test_a_selfcheck_launched_in_the_ui_shows_what_it_found(platform: PlatformUp) -> None:
    run = platform.until_status(platform.launch("selfcheck"), "SUCCESS", "FAILURE")
    assert run["status"] == "SUCCESS", run["eventConnection"]
    found = {
        "/".join(item["assetKey"]["path"]): {entry["label"] for entry in item["metadataEntries"]}
        for item in run["assetMaterializations"]
    }
    assert {"server", "revision", "tables", "clock_skew_s", "round_trip_ms"} <= found["selfcheck/database"]
    assert {"store", "round_trip_ms"} <= found["selfcheck/graph"]


def test_the_selfcheck_command_prints_what_it_found(platform: PlatformUp) -> None:
    done = platform.command("selfcheck", *PATIENTLY)
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["part", "state", "answered", "in", "detail"]
    assert [line.split()[0] for line in lines] == ["database", "graph", "api", "ui", "daemon", "runner"]
    assert {line.split()[1] for line in lines} == {"ok"}
    assert all(line.split()[3] == "ms" for line in lines)
    assert platform.up["ui"] in lines[3]
    assert "succeeded" in lines[5]


def test_without_the_demo_there_is_no_key_that_may_do_everything(platform: PlatformUp) -> None:
    assert platform.up["demo_key"] is None
    assert "Demo key" not in platform.log
    assert "demo-source" not in platform.up["pids"]


def test_a_key_opens_the_front_door_of_the_lineage_sink(platform: PlatformUp) -> None:
    answer = platform.send_event(run_event())
    assert (answer["status"], answer["tenantId"]) == ("accepted", 1)


@pytest.mark.needs("time")
def test_neither_ctrl_c_nor_a_killed_supervisor_leaves_a_process_or_blocks_the_next_start(lives: Lives) -> None:
    assert lives.processes_of_the_killed >= 6
    assert lives.left_processes == []
    assert lives.left_files == []


@pytest.mark.needs("time")
def test_every_part_ends_by_itself_when_it_is_asked_to(lives: Lives) -> None:
    """At a stop the supervisor kills what is not fast enough. Here nobody does, however long a part takes."""
    assert lives.ends_of_the_asked.keys() >= {"code-server", "webserver", "daemon", "api", "runner"}
    assert 128 + signal.SIGKILL not in lives.ends_of_the_asked.values()


@pytest.mark.needs("time")
def test_an_idle_platform_is_silent_on_a_terminal(lives: Lives) -> None:
    stream = Terminal()
    output = Output([name for name, _ in lives.idle_lines], stream)
    output.ready("Ready", [("API", "http://127.0.0.1:8000")])
    stream.truncate(stream.seek(0))
    for name, line in lives.idle_lines:
        output.line(name, line)
    assert stream.getvalue() == ""
    assert len(lives.idle_lines) > 20, "a log file has every line"

"""A run of a chain survives the death of its process, of everything, and a stop of the platform; a terminated one not.

One home with one runner slot, lived in three times: killed, stopped in order, and started again.
"""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from platform_defs.store.engine import open_engine
from platform_defs.work import rows
from tests.conftest import needs
from tests.e2e.chains_site import ChainsSite, chains_platform, print_node, waits_for_file
from tests.e2e.platform_up import processes_of
from tests.waiting import until

pytestmark = needs("time")


@dataclass
class Story:
    """What was seen in each life."""

    begun: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    drives: int = 0
    nested: str = ""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("lives")
    home, files = folder / "home", folder / "files"
    files.mkdir()
    told = Story()
    environment = {"PLATFORM_RUNNER_SLOTS": "2"}
    with chains_platform(home, environment) as site:
        nodes = [note("first", files), waits_for_file("long", files, "first"), note("last", files, "long")]
        run_id = site.start(site.chain("survivor", nodes))
        until("the node to run", (files / "long.begun").exists)
        os.kill(pid_of(site, run_id), signal.SIGKILL)
        until("it to run again", lambda: begins(files, "long") == 2)
        terminated = site.start(site.chain("terminated", [waits_for_file("held", files)]))
        until("the other to run", (files / "held.begun").exists)
        (shown,) = site.dagster_runs(terminated)
        site.platform.graphql("mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=shown["runId"])
        site.until_run(terminated, "STOPPED")
        site.platform.stop(signal.SIGKILL)
        until("all its processes to end", lambda: not processes_of(home))
    with chains_platform(home, environment) as site:
        until("it to run a third time", lambda: begins(files, "long") == 3)
        assert site.run(terminated)["status"] == "STOPPED"
        site.platform.stop(signal.SIGINT)
    with chains_platform(home, {"PLATFORM_RUNNER_SLOTS": "1"}) as site:
        until("it to run a fourth time", lambda: begins(files, "long") == 4)
        (files / "open").touch()
        site.until_run(run_id, "SUCCESS")
        told.nodes = site.nodes(run_id)
        told.begun = {name: begins(files, name) for name in told.nodes}
        told.statuses = {"survivor": site.run(run_id)["status"], "terminated": site.run(terminated)["status"]}
        told.drives = len(site.dagster_runs(run_id))
        site.chain("inner", [print_node("x")])
        site.chain("middle", [{"id": "sub", "type": "chain", "cfg": {"chain": "inner"}}])
        site.chain("outer", [{"id": "sub", "type": "chain", "cfg": {"chain": "middle"}}])
        nested = site.start(site.chain("outermost", [{"id": "sub", "type": "chain", "cfg": {"chain": "outer"}}]))
        told.nested = site.until_run(nested, "SUCCESS", "FAILED", "STOPPED")["status"]
    return told


def note(node_id: str, folder: Path, *depends_on: str) -> dict[str, object]:
    command = f"echo begun >> {folder}/{node_id}.begun"
    return {"id": node_id, "type": "shell", "cfg": {"command": command}, "dependsOn": list(depends_on)}


def begins(folder: Path, node_id: str) -> int:
    file = folder / f"{node_id}.begun"
    return len(file.read_text().splitlines()) if file.exists() else 0


def pid_of(site: ChainsSite, run_id: str) -> int:
    engine = open_engine(f"sqlite:///{site.platform.home}/platform.db")

    def look() -> int | None:
        row = rows.find_by_run_id(engine, site.dagster_runs(run_id)[-1]["runId"])
        return row.process.pid if row is not None and row.process is not None else None

    try:
        return int(until("the run to have a process", look) or 0)
    finally:
        engine.dispose()


def test_a_run_goes_on_after_each_death_and_no_node_that_succeeded_runs_again(story: Story) -> None:
    assert story.begun == {"first": 1, "long": 4, "last": 1}
    assert story.statuses["survivor"] == "SUCCESS"
    assert {node["status"] for node in story.nodes.values()} == {"SUCCESS"}


def test_each_process_is_shown_as_a_dagster_run_of_its_own(story: Story) -> None:
    assert story.drives == 4
    assert story.nodes["long"]["attempt"] == 4


def test_a_terminated_run_stays_stopped(story: Story) -> None:
    assert story.statuses["terminated"] == "STOPPED"


def test_three_nested_chains_end_with_one_runner_slot(story: Story) -> None:
    assert story.nested == "SUCCESS"

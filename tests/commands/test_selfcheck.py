"""What `platform selfcheck` says of parts that are not there, and how it ends."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.supervisor.ports import find_free_port
from tests import test_cli
from tests.api.serving import serve_api


def run(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Where nobody listens at the addresses of the settings, unless a port is said."""
    ports = {name: str(find_free_port("127.0.0.1")) for name in ("PLATFORM_API_PORT", "PLATFORM_UI_PORT")}
    return test_cli.run(*arguments, home=home, **(ports | environment))


def write_up(home: Path, *, pid: int) -> None:
    up = {"api": "http://127.0.0.1:1", "ui": "http://127.0.0.1:2", "demo_key": None, "pids": {"api": pid}}
    (home / "up.json").write_text(json.dumps(up))


@pytest.mark.parametrize("left_by_a_kill", [False, True])
def test_a_selfcheck_of_what_does_not_run_says_so_and_still_asks_the_stores(
    tmp_path: Path, left_by_a_kill: bool
) -> None:
    run("db", "upgrade", home=tmp_path)
    if left_by_a_kill:
        with subprocess.Popen(["true"]) as gone:
            gone.wait()
        write_up(tmp_path, pid=gone.pid)
    done = run("selfcheck", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        f"platform: nothing is running in {tmp_path}; `platform up` starts it\n",
    )
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["part", "state"],
        ["database", "ok"],
        ["graph", "ok"],
    ]


def test_a_selfcheck_of_a_platform_that_is_starting_does_not_call_it_healthy(tmp_path: Path) -> None:
    run("db", "upgrade", home=tmp_path)
    (tmp_path / "up.lock").write_text(str(os.getpid()))
    done = run("selfcheck", home=tmp_path)
    assert (done.returncode, done.stderr) == (1, "platform: selfcheck failed: api, ui, daemon, runner\n")
    assert re.search(r"^api +FAILED +- +`platform up` is not ready yet$", done.stdout, re.MULTILINE), done.stdout


def test_a_selfcheck_names_every_part_that_does_not_answer(tmp_path: Path) -> None:
    run("db", "upgrade", home=tmp_path)
    write_up(tmp_path, pid=os.getpid())
    done = run("selfcheck", "--json", home=tmp_path)
    assert (done.returncode, done.stderr) == (1, "platform: selfcheck failed: api, ui, daemon, runner\n")
    found = json.loads(done.stdout)
    assert (found["ok"], found["home"]) == (False, str(tmp_path))
    assert {part["name"]: part["ok"] for part in found["parts"]} == {
        **{"database": True, "graph": True},
        **dict.fromkeys(("api", "ui", "daemon", "runner"), False),
    }
    details = {part["name"]: part["detail"] for part in found["parts"]}
    assert details["api"] == "http://127.0.0.1:1/readyz does not answer yet"
    assert details["runner"] == "no runner is alive; `platform up` or `platform runner` starts one"


def test_a_selfcheck_of_an_api_alone_names_what_is_missing(tmp_path: Path) -> None:
    run("db", "upgrade", home=tmp_path)
    engine = open_engine(Settings(home=tmp_path).database_url)
    with serve_api(engine, home=tmp_path) as api:
        done = run("selfcheck", home=tmp_path, PLATFORM_API_PORT=api.url.rpartition(":")[2])
    engine.dispose()
    assert (done.returncode, done.stderr) == (1, "platform: selfcheck failed: ui, daemon, runner\n")
    assert re.search(rf"^api +ok +[\d.]+ ms +{api.url}$", done.stdout, re.MULTILINE), done.stdout


UNREACHABLE = {
    "graph": {"PLATFORM_GRAPH_URL": "bolt://127.0.0.1:1"},
    # where the database is away the graph cannot be asked either: it may be in it
    "database, graph": {"PLATFORM_DB_URL": "mysql+mysqlconnector://nobody@127.0.0.1:1/platform"},
}


@pytest.mark.parametrize("broken", UNREACHABLE)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_selfcheck_names_a_store_that_does_not_answer_in_its_last_line(
    tmp_path: Path, broken: str, is_running: bool
) -> None:
    run("db", "upgrade", home=tmp_path)
    if is_running:
        write_up(tmp_path, pid=os.getpid())
    done = run("selfcheck", home=tmp_path, **UNREACHABLE[broken])
    assert done.returncode == 1
    last = (
        f"selfcheck failed: {broken}, api, ui, daemon, runner"
        if is_running
        else f"nothing is running in {tmp_path}; `platform up` starts it once these are mended: {broken}"
    )
    assert done.stderr == f"platform: {last}\n"
    stores = {words[0]: words[1] for words in map(str.split, done.stdout.splitlines()[1:3])}
    assert stores == {name: "FAILED" if name in broken.split(", ") else "ok" for name in ("database", "graph")}
    assert "127.0.0.1:1" in done.stdout
    assert re.search(r"; start (it|its server), or mend PLATFORM_(GRAPH|DB)_URL$", done.stdout, re.MULTILINE)

"""`platform chains` as an operator types it, and the file that it loads."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, make_url

from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.cli import cli
from platform_defs.errors import PlatformError
from tests.chains.making import audit_rows, put

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
FILE = """
jobs:
  - {name: hello, type: print, config: {message: 2026-01-01}}
chains:
  - name: nightly
    description: what it is for
    dag:
      nodes:
        - {id: a, jobId: hello}
        - {id: b, type: print, dependsOn: [a], cfg: {message: done}}
"""
Platform = Callable[..., Result]


@pytest.fixture
def platform(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", make_url(engine.url).render_as_string(hide_password=False))

    def run(*arguments: str) -> Result:
        done = CliRunner().invoke(cli, ["chains", *arguments])
        if done.exception is not None and not isinstance(done.exception, (SystemExit, PlatformError)):
            raise done.exception
        return done

    return run


def load(platform: Platform, tmp_path: Path, text: str = FILE) -> Result:
    (tmp_path / "chains.yaml").write_text(text)
    return platform("load", str(tmp_path / "chains.yaml"))


def test_a_chain_is_loaded_started_repaired_and_stopped(platform: Platform, tmp_path: Path, engine: Engine) -> None:
    assert load(platform, tmp_path).output == "new job hello\nnew chain nightly\n"
    assert load(platform, tmp_path).output == "unchanged job hello\nunchanged chain nightly\n"
    changed = FILE.replace("done", "all done")
    assert load(platform, tmp_path, changed).output == "unchanged job hello\nupdated chain nightly\n"
    (listed,) = [json.loads(line) for line in platform("list", "--json").output.splitlines()]
    assert (listed["name"], listed["version"]) == ("nightly", 2)
    shown = json.loads(platform("show", "nightly").output)
    assert shown["dag_json"]["nodes"][1]["cfg"] == {"message": "all done"}
    assert shown["dag_json"]["nodes"][0]["jobId"] != "hello"
    run_id = platform("start", listed["chain_id"], "--params", '{"x": 1}').stdout.strip()
    assert "PENDING" in platform("runs", "--chain", "nightly").output
    put(engine, run_id, RunStatus.FAILED, a=NodeStatus.FAILED, b=NodeStatus.SKIPPED)
    assert platform("retry", run_id, "a", "--reason", "why").stdout == "node a is RETRYING, attempt 2\n"
    assert platform("complete", run_id, "a", "--artifact", "[1]").stdout == "node a is SUCCESS\n"
    assert platform("complete", run_id, "a").output == "node a is SUCCESS already\n"
    first = json.loads(platform("nodes", run_id, "--json").output.splitlines()[0])
    assert [one["action"] for one in first["operations"]] == ["retry", "complete"]
    assert platform("stop", run_id).output == f"run {run_id} is STOPPING\n"
    assert platform("disable", "nightly").output == "nightly is disabled\n"
    assert str(platform("start", "nightly").exception) == "chain is disabled"
    assert {row.actor for row in audit_rows(engine)} == {"operator"}
    header, *lines = platform("audit", run_id).output.splitlines()
    assert header.split()[:3] == ["when", "who", "did"]
    actions = [line.split()[3] for line in lines]  # a time has two words
    assert actions == ["run.stop", "node.complete", "node.retry", "run.start"]


def test_a_file_with_a_problem_is_refused_as_a_whole(platform: Platform, tmp_path: Path) -> None:
    wrong = FILE.replace("dependsOn: [a]", "dependsOn: [x], typ: y").replace(
        "type: print, config", "type: prnt, config"
    )
    refused = load(platform, tmp_path, wrong)
    assert refused.exit_code == 1
    file = tmp_path / "chains.yaml"
    lines = refused.output.splitlines()
    assert lines[0].startswith(f"{file}:3: job hello: type: expected one of ")
    assert lines[1] == f"{file}:8: chain nightly: node b: 'typ': expected type, which looks like what was meant"
    assert lines[2] == f"{file}:8: chain nightly: node b: dependsOn: expected ids of nodes of this dag, got 'x'"
    assert len(lines) == 3
    assert platform("list").output.startswith("no chains; ")
    assert "found nothing" in load(platform, tmp_path, "").output
    assert "nightly is there twice" in load(platform, tmp_path, FILE + FILE.partition("chains:\n")[2]).output


def test_bad_json_in_an_option_is_one_line(platform: Platform) -> None:
    refused = platform("start", "x", "--params", "{")
    assert refused.exit_code == 2
    assert "--params: expected valid JSON" in refused.output

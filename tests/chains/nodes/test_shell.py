"""The node type `shell` with real processes: environment, output, and the end of the whole group."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.chains.nodes.attempt_log import LOGGED_CHARACTERS
from platform_defs.chains.nodes.catalogue import cfg_problems, node_types
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeFailed, NodeStopped
from platform_defs.settings import Settings
from tests.chains.nodes.attempts import Bench, open_bench
from tests.needs import ROOT
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def bench(engine: Engine) -> Bench:
    return open_bench(engine, NodeEnvironment(engine, shell_is_allowed=True))


def is_alive(pid: int) -> bool:
    """Whether a process that is no zombie has this pid."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_it_is_off_unless_the_operator_allows_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work = open_bench(engine, NodeEnvironment.from_settings(engine, Settings.load()))
    assert cfg_problems(at_work.types, "n", "shell", {"command": "true"}) == [
        "node n: shell nodes are off; PLATFORM_CHAIN_SHELL=true allows them"
    ]
    with pytest.raises(NodeFailed, match="PLATFORM_CHAIN_SHELL") as raised:
        at_work.perform("shell", {"command": "true"})
    assert not raised.value.may_retry
    monkeypatch.setenv("PLATFORM_CHAIN_SHELL", "true")
    allowed = node_types(environment=NodeEnvironment.from_settings(engine, Settings.load()))
    assert cfg_problems(allowed, "n", "shell", {"command": "echo ${HOME}"}) == []


def test_the_environment_is_clean_and_values_are_variables(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_DB_URL", "mysql://u:hunter2@h/d")
    monkeypatch.setenv("CHAIN_TOKEN", "hunter2hunter2")
    cfg = {
        "command": 'env | sort; echo "day ${DAY}"; pwd >&2; ls -A',
        "env": {"DAY": "${params.day}", "TOKEN": "env:CHAIN_TOKEN"},
    }
    artifact = bench.artifact("shell", cfg, {"day": "$(touch pwned)"})
    assert artifact == {"exitCode": 0, "output": "day $(touch pwned)"}
    printed = "\n".join(bench.lines)
    assert "hunter2" not in printed
    assert "TOKEN=***" in printed
    names = {line.partition("=")[0] for line in bench.lines if "=" in line}
    assert names == {"ATTEMPT", "DAY", "HOME", "LANG", "NODE_ID", "PATH", "PWD", "RUN_ID", "TMPDIR", "TOKEN"}


def test_the_last_line_is_the_artifact_and_an_exit_code_is_a_failure(bench: Bench) -> None:
    assert bench.artifact("shell", {"command": "echo rows; echo '{\"rows\": 3}'; echo noise >&2"})["output"] == {
        "rows": 3
    }
    with pytest.raises(NodeFailed, match="exit code 3; its output is in the log"):
        bench.perform("shell", {"command": "echo no such day >&2; exit 3"})
    assert "no such day" in bench.lines
    assert bench.artifact("shell", {"command": "true"}) == {"exitCode": 0, "output": None}


def test_output_is_bounded_and_read_to_its_end(bench: Bench) -> None:
    bench.perform("shell", {"command": "yes 0123456789 | head -c 3000000; echo end"})
    assert sum(map(len, bench.lines)) <= LOGGED_CHARACTERS + 200
    assert bench.lines[-1].startswith("(more than")


def test_what_a_command_leaves_behind_ends_with_it(bench: Bench) -> None:
    bench.perform("shell", {"command": "sleep 1000 & echo $!"})
    left = int(bench.lines[0])
    until("the process that was left behind to end", lambda: not is_alive(left))


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_stop_ends_the_whole_group_also_one_that_ignores_sigterm(bench: Bench, trap: str) -> None:
    command = f"{trap}sleep 1000 & echo $!; sh -c '{trap.replace(chr(39), chr(34))}echo $$; sleep 1000'; sleep 1000"
    ended: list[BaseException] = []

    def attempt() -> None:
        try:
            bench.perform("shell", {"command": command})
        except NodeStopped as error:
            ended.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    until("both processes", lambda: len(bench.lines) == 2)
    bench.stop.set("its time is over")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert [str(error) for error in ended] == ["its time is over"]
    until("both processes to end", lambda: not any(is_alive(int(line)) for line in bench.lines))


PROGRAM = """
import sys, threading
from platform_defs.chains.nodes.port import NodeContext, StopSignal
from platform_defs.chains.nodes.types.shell_node import ShellCfg, ShellExecutor
context = NodeContext("r", "n", 1, {}, None, StopSignal(), lambda text: print(text, flush=True), lambda value: None)
ShellExecutor(None).execute(context, ShellCfg(command="sleep 1000 & echo $!; sleep 1000"))
"""


def test_the_group_ends_when_the_process_that_executes_the_chain_is_killed(engine: Engine) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            sleeper = int(process.stdout.readline())
            assert is_alive(sleeper)
        finally:
            process.kill()
    until("the command to end", lambda: not is_alive(sleeper))


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"command": "echo ${params.x}"}, "cfg.command: expected no expression here"),
        ({"command": "true", "env": {"A B": "x"}}, "cfg.env: expected the name of a variable"),
        ({"command": ""}, "cfg.command: "),
    ],
)
def test_problems_are_told_when_a_chain_is_saved(bench: Bench, cfg: dict[str, Any], problem: str) -> None:
    assert any(problem in text for text in cfg_problems(bench.types, "n", "shell", cfg))

"""The node type `python` with functions of an installed package."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from platform_defs.chains.nodes.catalogue import cfg_problems
from platform_defs.chains.nodes.port import NodeFailed, Waiting
from platform_defs.chains.nodes.printing import printing_into
from platform_defs.chains.nodes.types.python_node import load_function
from tests.chains.nodes.attempts import Bench, open_bench

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)

MODULE = """
from datetime import UTC, datetime
from platform_defs.chains.nodes.port import NodeResult, Waiting

def add(context, arguments):
    print("adding", *arguments["numbers"])
    print("no end of line", end="")
    return {"sum": sum(arguments["numbers"])}

def count(context, arguments):
    return NodeResult({"seen": context.checkpoint}, checkpoint=(context.checkpoint or 0) + 1)

def wait(context, arguments):
    return Waiting({"kind": "time"}, datetime(2030, 1, 1, tzinfo=UTC), checkpoint="c")

def spoil(context, arguments):
    raise ValueError("no such day " + context.reveal(arguments["secret"]))
"""


@pytest.fixture
def bench(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A package with entry points, as pip leaves it behind."""
    (tmp_path / "teamwork.py").write_text(MODULE)
    info = tmp_path / "teamwork-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teamwork\nVersion: 1\n")
    names = "".join(f"{name} = teamwork:{name}\n" for name in ("add", "count", "wait", "spoil"))
    (info / "entry_points.txt").write_text(f"[platform_defs.chain_functions]\n{names}")
    monkeypatch.syspath_prepend(str(tmp_path))
    usual = sys.stdout
    load_function.cache_clear()
    yield open_bench(engine)
    sys.stdout = usual
    sys.modules.pop("teamwork", None)
    load_function.cache_clear()


def test_a_function_gets_arguments_and_what_it_prints_is_in_the_log(bench: Bench) -> None:
    cfg = {"function": "add", "arguments": {"numbers": ["${params.n}", 2]}}
    assert bench.artifact("python", cfg, {"n": 40}) == {"sum": 42}
    assert bench.lines == ["adding 40 2", "no end of line"]


def test_a_function_may_keep_a_checkpoint_or_wait(bench: Bench) -> None:
    assert [bench.artifact("python", {"function": "count"})["seen"] for _ in range(3)] == [None, 1, 2]
    assert isinstance(bench.perform("python", {"function": "wait"}), Waiting)


def test_what_threads_print_at_the_same_time_stays_apart(bench: Bench) -> None:
    barrier = threading.Barrier(3)
    logs: dict[int, list[str]] = {0: [], 1: [], 2: []}

    def work(number: int) -> None:
        with printing_into(logs[number].append):
            for step in range(50):
                print(number, step)  # noqa: T201
                barrier.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logs == {number: [f"{number} {step}" for step in range(50)] for number in logs}


def test_an_error_is_shown_without_secrets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAIN_X", "hunter2")
    with pytest.raises(NodeFailed) as raised:
        bench.perform("python", {"function": "spoil", "arguments": {"secret": "env:CHAIN_X"}})
    assert str(raised.value) == "ValueError: no such day ***"


def test_only_functions_of_entry_points_can_be_called(bench: Bench) -> None:
    for name in ("os:system", "teamwork:add", "nothing"):
        (problem,) = cfg_problems(bench.types, "n", "python", {"function": name})
        assert "expected a function of platform_defs.chain_functions (add, count" in problem
        with pytest.raises(NodeFailed) as raised:
            bench.perform("python", {"function": name})
        assert not raised.value.may_retry

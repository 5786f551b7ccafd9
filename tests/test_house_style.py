"""Formatter, linter and type checker are part of the tests: a tree that fails them is broken."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_the_tree_passes(command: str) -> None:
    program, *arguments = command.split()
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_measures_a_duration() -> None:
    """A busy machine is not a fault of the code. Tests wait for conditions (tests/waiting.py); bench/ measures."""
    measured = re.compile(r"perf_counter\(|(monotonic|time)\(\) - \w*(began|begin|start|before|t0)")
    tests = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve())
    assert [str(path.relative_to(ROOT)) for path in tests if measured.search(path.read_text(encoding="utf-8"))] == []

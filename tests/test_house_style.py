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


# A clock that a test holds in its hand (`gate.clock.now()`) may be compared with anything.
MEASURED = re.compile(
    r"perf_counter\(|(monotonic|time)\(\) - \w*(began|begin|start|before|t0)|\belapsed\b"
    r"|\[\"(ms|seconds)\"\] <|assert .*(?<!clock\.)now\([^)]*\)[^\n]*\.total_seconds\(\) <"
    # what two clocks wrote down, or one clock at two moments, is no less a duration
    r"|(not_before|_at|_time) - [^\n]*\bcreated_at\b|>=? timedelta\(seconds="
)


def test_no_test_measures_a_duration() -> None:
    """A busy machine is not a fault of the code. Tests wait for conditions (tests/waiting.py); bench/ measures."""
    tests = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve())
    assert [str(path.relative_to(ROOT)) for path in tests if MEASURED.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("line", "measures"),
    [
        ("assert time.monotonic() - began < 5", True),
        ("assert answer.elapsed < limit", True),
        ('assert part["ms"] < 100', True),
        ("assert (datetime.now(UTC) - seen).total_seconds() < 3", True),
        ('return sum(line["ms"] < 900 * HOLD_S for line in lines)', True),
        ("assert second - first >= timedelta(seconds=1)", True),
        ("pauses.append(round((row.not_before - row.created_at).total_seconds()))", True),
        ("assert (row.not_before - task.start_time).total_seconds() == 15", False),
        ('assert line["ms"] > 0', False),
        ("assert abs(read - exact) < timedelta(seconds=1)", False),
        ("assert (two.other.clock.now() - since).total_seconds() < 116", False),
        ("deadline = time.monotonic() + seconds", False),
    ],
)
def test_a_duration_is_known_by_how_it_is_taken(line: str, measures: bool) -> None:
    assert bool(MEASURED.search(line)) is measures

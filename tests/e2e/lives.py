"""One home lived in three times: by a platform that was killed, one that Ctrl-C ended, one with another launcher."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platform_defs.work import rows
from tests.e2e.platform_up import processes_of
from tests.e2e.warm import Warm
from tests.test_definitions import SENSORS
from tests.waiting import PATIENCE_S, until

TICK = "Checking for new runs for sensor: "


@dataclass(frozen=True)
class Lives:
    """A start costs a quarter of a minute, so all tests of starting and ending look at these."""

    home: Path
    idle_lines: list[tuple[str, str]]
    ends_of_the_asked: dict[str, int]
    processes_of_the_killed: int
    interrupted_run: str
    left_processes: list[int]
    left_files: list[str]
    parts_with_another_launcher: set[str]
    handed_over: rows.Work
    handed_over_status: str


def live(home: Path, tree: Path, config: Path) -> Lives:
    with _platform(home, tree) as killed:
        idle_lines = _idle_lines(killed)
        processes = len(killed.processes())
        ends = _ends_of_all_parts(killed)
        killed.stop(signal.SIGKILL)
        until("all its processes to end", lambda: not processes_of(home))
    with _platform(home, tree) as interrupted:
        run_id = interrupted.hold(600)
        interrupted.until_status(run_id, "STARTED")
        interrupted.stop(signal.SIGINT)
        left_processes = processes_of(home)
        left_files = [name for name in ("up.json", "up.lock", "runner.sock") if (home / name).exists()]
    config.write_text("run_launcher: {module: dagster, class: DefaultRunLauncher}\n")
    with _platform(home, tree, {"PLATFORM_DAGSTER_CONFIG": str(config)}) as other:
        idle_lines += _idle_lines(other)
        row = rows.enqueue(other.engine, "selfcheck", {})
        done = rows.wait(other.engine, row.id, PATIENCE_S)
        status = other.run(done.run_id)["status"]
        parts = set(other.up["pids"])
    return Lives(home, idle_lines, ends, processes, run_id, left_processes, left_files, parts, done, status)


def _idle_lines(platform: Warm) -> list[tuple[str, str]]:
    """What a platform with nothing to do says until each of its sensors has ticked: the part, and the line."""
    begin = len(platform.lines)

    def ticked() -> set[str]:
        return {line.rpartition(" ")[2] for line in platform.lines[begin:] if TICK in line}

    until("every sensor to tick", lambda: ticked() >= set(SENSORS))
    parts = (re.fullmatch(r"(\S+) +\| (.*)", line) for line in platform.lines[begin:])
    return [(part[1], part[2]) for part in parts if part]


def _ends_of_all_parts(platform: Warm) -> dict[str, int]:
    """Asks every part to stop as the supervisor would, which kills none of them here; the exit codes by part."""
    pids: dict[str, int] = platform.up["pids"]
    for pid in pids.values():
        os.kill(pid, signal.SIGTERM)

    def look() -> dict[str, int]:
        told = (re.search(r"\| (\S+) ended with exit code (\d+); starting it again", line) for line in platform.lines)
        found = {one[1]: int(one[2]) for one in told if one}
        return found if found.keys() >= pids.keys() else {}

    return until("every part to end", look)


@contextmanager
def _platform(home: Path, tree: Path, environment: dict[str, str] | None = None) -> Iterator[Warm]:
    up = Warm(home, tree, environment)
    try:
        yield up.until_ready()
    finally:
        up.end()

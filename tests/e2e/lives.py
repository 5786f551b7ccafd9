"""One home lived in three times: by a platform that was killed, one that Ctrl-C ended, one with another launcher."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platform_defs.work import rows
from tests.e2e.platform_up import processes_of
from tests.e2e.warm import Warm
from tests.waiting import PATIENCE_S, until


@dataclass(frozen=True)
class Lives:
    """A start costs a quarter of a minute, so all tests of starting and ending look at these."""

    home: Path
    processes_of_the_killed: int
    interrupted_run: str
    left_processes: list[int]
    left_files: list[str]
    killed_at_the_stop: list[str]
    parts_with_another_launcher: set[str]
    handed_over: rows.Work
    handed_over_status: str


def live(home: Path, tree: Path, config: Path) -> Lives:
    with _platform(home, tree) as killed:
        processes = len(killed.processes())
        killed.stop(signal.SIGKILL)
        until("all its processes to end", lambda: not processes_of(home))
    with _platform(home, tree) as interrupted:
        run_id = interrupted.hold(600)
        interrupted.until_status(run_id, "STARTED")
        interrupted.stop(signal.SIGINT)
        left_processes = processes_of(home)
        killed_at_the_stop = [line for line in interrupted.lines if "killing it" in line]
        left_files = [name for name in ("up.json", "up.lock", "runner.sock") if (home / name).exists()]
    config.write_text("run_launcher: {module: dagster, class: DefaultRunLauncher}\n")
    with _platform(home, tree, {"PLATFORM_DAGSTER_CONFIG": str(config)}) as other:
        row = rows.enqueue(other.engine, "selfcheck", {})
        done = rows.wait(other.engine, row.id, PATIENCE_S)
        status = other.run(done.run_id)["status"]
        parts = set(other.up["pids"])
    return Lives(home, processes, run_id, left_processes, left_files, killed_at_the_stop, parts, done, status)


@contextmanager
def _platform(home: Path, tree: Path, environment: dict[str, str] | None = None) -> Iterator[Warm]:
    up = Warm(home, tree, environment)
    try:
        yield up.until_ready()
    finally:
        up.end()

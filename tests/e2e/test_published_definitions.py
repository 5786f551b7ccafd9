"""Definitions that change because a model was published: what does not need them never waits for them."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from platform_defs.store.engine import transact
from platform_defs.work import rows
from platform_defs.work.definition_versions import bump
from platform_defs.work.rows import Status
from platform_defs.work.wake import wake
from tests.e2e.warm import Warm
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.parametrize("platform", ["embedded"], indirect=True)


def _fork_servers(platform: Warm) -> set[int]:
    """Without the runs that they forked, which look the same."""
    alike = {
        pid for pid in platform.processes() if b"platform_defs.runner.fork_server_process" in _read(pid, "cmdline")
    }
    return {pid for pid in alike if _parent(pid) not in alike}


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_rows_of_our_own_kinds_run_while_published_definitions_load_and_launches_wait_for_them(
    platform: Warm,
) -> None:
    until("one fork server to be left", lambda: len(_fork_servers(platform)) == 1)
    before = _fork_servers(platform)
    transact(platform.engine, lambda connection: bump(connection, "models"))
    wake(platform.home)
    [loading] = until("another fork server to load", lambda: _fork_servers(platform) - before)
    os.kill(loading, signal.SIGSTOP)
    try:
        # more launches than slots, so that they would keep every other row from one
        launched = [platform.launch("two_ops") for _ in range(10)]
        row = rows.enqueue(platform.engine, "selfcheck", {})
        wake(platform.home)
        assert rows.wait(platform.engine, row.id, PATIENCE_S).status is Status.SUCCEEDED
        assert {platform.row(run_id).status for run_id in launched} == {Status.QUEUED}
    finally:
        os.kill(loading, signal.SIGCONT)
    for run_id in launched:
        assert platform.until_closed(run_id).status is Status.SUCCEEDED


@contextlib.contextmanager
def _edits_all_the_time(platform: Warm) -> Iterator[Callable[[], int]]:
    """Changes rows of definitions every second, as people who publish models do; yields how often so far."""
    done, edits = threading.Event(), [0]

    def edit() -> None:
        while not done.wait(1):
            transact(platform.engine, lambda connection: bump(connection, "models"))
            edits[0] += 1

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        yield lambda: edits[0]
    finally:
        done.set()
        editor.join()


def test_a_launched_run_finishes_while_rows_of_definitions_go_on_changing(platform: Warm) -> None:
    with _edits_all_the_time(platform) as edits:
        until("some edits", lambda: edits() >= 3)
        run_id = platform.launch("selfcheck")
        assert platform.until_closed(run_id).status is Status.SUCCEEDED
        finished_at = edits()
        until("more edits after the run", lambda: edits() > finished_at)

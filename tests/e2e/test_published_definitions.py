"""Definitions that change because a model was published: what does not need them never waits for them."""

import os
import signal
from pathlib import Path

import pytest

from platform_defs.store.engine import transact
from platform_defs.work import rows
from platform_defs.work.definition_versions import bump
from platform_defs.work.rows import Status
from platform_defs.work.wake import wake
from tests.e2e.warm import Warm
from tests.waiting import until

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
        assert rows.wait(platform.engine, row.id, 60).status is Status.SUCCEEDED
        assert {platform.row(run_id).status for run_id in launched} == {Status.QUEUED}
    finally:
        os.kill(loading, signal.SIGCONT)
    for run_id in launched:
        assert platform.until_closed(run_id, 60).status is Status.SUCCEEDED

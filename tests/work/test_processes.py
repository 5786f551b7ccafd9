"""Telling processes apart, waking the runner, and knowing which definitions are on disk."""

import os
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from platform_defs.errors import PlatformError
from platform_defs.runner.fingerprint import _source_files, read_fingerprint
from platform_defs.work import runners, wake
from platform_defs.work.definition_versions import bump
from platform_defs.work.processes import ProcessId, listener
from tests.waiting import until


def test_a_pid_that_was_given_away_again_is_another_process() -> None:
    me = ProcessId.current()
    assert me.is_alive()
    assert not ProcessId(me.pid, me.started - 1).is_alive()


def test_a_process_that_ended_is_not_alive_even_before_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        identity = ProcessId.of(child.pid)
        assert identity is not None
        assert identity.is_alive()
        os.kill(child.pid, 9)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not identity.is_alive()


def test_a_wake_up_arrives_also_in_a_home_with_a_very_long_name(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 40)
    home.mkdir()
    assert not wake.wake(home)
    assert not wake.wake(home / "absent")
    with wake.open_listener(home) as listener:
        assert wake.wake(home)
        assert listener.recv(8) == b"\n"
        assert stat.S_IMODE((home / wake.SOCKET).stat().st_mode) == 0o600
    assert not wake.wake(home)


def test_a_second_runner_of_a_home_is_refused_and_takes_nothing_from_the_first(tmp_path: Path) -> None:
    with wake.open_listener(tmp_path) as listener:
        with pytest.raises(PlatformError, match="another runner serves"), wake.open_listener(tmp_path):
            pass
        assert wake.wake(tmp_path)
        assert listener.recv(8) == b"\n"
    with wake.open_listener(tmp_path):
        assert wake.wake(tmp_path)


def test_changing_rows_that_definitions_are_built_from_changes_the_fingerprint(engine: Engine) -> None:
    seen = [read_fingerprint(engine)]
    for name in ("chains", "chains", "models"):
        assert read_fingerprint(engine) == seen[-1]
        with engine.begin() as connection:
            bump(connection, name)
        seen.append(read_fingerprint(engine))
    assert len(set(seen)) == 4


def test_a_runner_counts_as_alive_only_while_its_process_is(engine: Engine) -> None:
    me = ProcessId.current()
    for process in (me, ProcessId(me.pid, me.started - 1)):
        runners.record_heartbeat(
            engine,
            process,
            slots=8,
            busy=0,
            definitions=None,
            load_error=None,
            metrics="",
            started_at=datetime.now(UTC),
        )
    assert [runner.process for runner in runners.living_runners(engine)] == [me]
    runners.record_stop(engine, me)
    assert runners.living_runners(engine) == []


def test_an_editors_lock_that_points_nowhere_is_no_source_file(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    (tmp_path / ".#module.py").symlink_to("nobody@nowhere.1234")
    assert [Path(path).name for path, _ in _source_files(tmp_path)] == ["module.py"]


def test_the_process_that_listens_on_a_port_is_found_while_it_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listener(port) == ProcessId.current()
    assert listener(port) is None


def test_what_a_killed_leader_of_a_group_left_is_ended() -> None:
    command = "sleep 600 & echo $!; exec sleep 600"
    with subprocess.Popen(["sh", "-c", command], start_new_session=True, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        other = ProcessId.of(int(leader.stdout.readline()))
        process = ProcessId.of(leader.pid)
        assert other is not None
        assert process is not None
        assert process.end_left_group() == []
        assert other.is_alive()
        leader.kill()
        leader.wait()
        assert process.end_left_group() == [other.pid]
    until("it to end", lambda: not other.is_alive())

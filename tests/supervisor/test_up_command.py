"""What `platform up` refuses before it starts anything."""

import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

from platform_defs.supervisor.ports import find_free_port
from tests.waiting import PATIENCE_S


def platform_up(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(sysconfig.get_path("scripts"), "platform")), "up", *options],
        env=os.environ | {"PLATFORM_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_taken_port_is_one_line_that_names_it_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], find_free_port("127.0.0.1")
        for options in (("--api-port", port, "--ui-port", free), ("--ui-port", port, "--api-port", free)):
            answer = platform_up(tmp_path / "home", *map(str, options))
            assert answer.returncode == 1
            assert answer.stdout == ""
            assert len(answer.stderr.splitlines()) == 1
            assert f"port {port} on 127.0.0.1 is not free" in answer.stderr
            assert str(options[0]) in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_one_port_cannot_serve_both(tmp_path: Path) -> None:
    answer = platform_up(tmp_path, "--api-port", "8123", "--ui-port", "8123")
    assert answer.returncode != 0
    assert "port 8123 cannot serve both" in answer.stderr

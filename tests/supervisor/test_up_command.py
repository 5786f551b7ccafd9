"""What `platform up` refuses before it starts anything."""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from platform_defs.supervisor import supervisor
from platform_defs.supervisor.child import ChildSpec
from platform_defs.supervisor.ports import find_free_port
from tests.commands.command_line import RunPlatform
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


@pytest.fixture
def sigterm_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_as_before")
def test_a_start_without_the_demo_names_no_demo_key_although_the_home_has_one(
    run_platform: RunPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PLATFORM_HOME", str(home))
    keys: list[str | None] = []

    class EverythingReady:
        """In place of the supervisor: starts nothing, and reads up.json as it is when all are ready."""

        def __init__(
            self, children: Sequence[ChildSpec], *_: Any, on_change: Callable[[Mapping[str, int]], None], **__: Any
        ) -> None:
            self._pids = {child.name: 1 for child in children}
            self._on_change = on_change

        async def run(self) -> None:
            self._on_change(self._pids)
            keys.append(json.loads((home / "up.json").read_text())["demo_key"])

    monkeypatch.setattr(supervisor, "Supervisor", EverythingReady)
    ports = ("--api-port", str(find_free_port("127.0.0.1")), "--ui-port", str(find_free_port("127.0.0.1")))
    for demo in ("--demo", "--no-demo"):
        code, _, err = run_platform("up", *ports, demo)
        assert code == 0, err
    assert keys == [(home / "demo.key").read_text().strip(), None]

"""The `platform` command in the process of the tests, which saves the time that each import of it takes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from platform_defs.cli import main

# the exit code, and what was written to stdout and stderr
RunPlatform = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_platform(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> RunPlatform:
    """On a home whose database has been migrated."""
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["platform", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out, written.err

    assert command("db", "upgrade", "--json")[0] == 0
    return command

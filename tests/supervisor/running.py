"""A supervisor under test in a process of its own, and ways to wait for what it does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
HARNESS = Path(__file__).with_name("harness.py")

SLEEPER = "import time; print('hello'); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('hello'); time.sleep(600)"


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_of(home: Path) -> list[int]:
    """Everything that the supervisor of this home started, however deep: its environment names the home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if f"HOME_FOLDER={home}\0".encode() in environment and lives(int(entry.name)):
                found.append(int(entry.name))
    return found


class Running:
    def __init__(self, home: Path, children: list[dict[str, Any]], **description: Any) -> None:
        self.home = home
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(HARNESS), str(home)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"children": children, **description}))
        self.process.stdin.close()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def up(self) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.home / "up.json").read_text())
        except FileNotFoundError:
            return None
        return content

    def until_up(self) -> dict[str, Any]:
        return until(f"up.json; it said {self.lines}", self.up) or {}

    def until_line(self, text: str) -> str:
        def look() -> str:
            return next((line for line in self.lines if text in line), "")

        return until(f"a line with {text!r} in {self.lines}", look)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(timeout=PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in processes_of(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

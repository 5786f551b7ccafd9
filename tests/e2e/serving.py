"""`platform serve` under load: its log goes to a file, because a pipe that nobody reads would stop it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
SERVE = "from platform_defs.cli import main; main()"


class Serving:
    def __init__(self, env: dict[str, str], folder: Path, code: str = SERVE) -> None:
        self.log = folder / f"serve-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "serve", "--port", "0"], cwd=ROOT, env=env, stderr=log
            )
        try:
            self.url = self._listening()
        except BaseException:
            self.stop()
            raise

    def _listening(self) -> str:
        def look() -> str | None:
            assert self.process.poll() is None, self.log.read_text()
            lines = self.log.read_text().splitlines()
            return next((json.loads(line)["url"] for line in lines if '"listening"' in line), None)

        return until("the API to listen", look) or ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)

    def peak_memory(self) -> int:
        """Bytes of resident memory at its highest."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))

"""One file per run for what its process writes when it crashes. Output of the run's steps is not in it."""

import time
from pathlib import Path

from platform_defs.logs import mask_secrets

KEEP_S = 7 * 86_400
LONGEST_QUOTE = 500
# What SQLAlchemy writes below the message of an error; it says less, and the parameters may be confidential.
BELOW_THE_MESSAGE = ("[SQL:", "[parameters:", "(Background on this error")


class CrashLogs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.log"

    def quote(self, run_id: str) -> str:
        """The message that ends a run's crash log, to be appended to the reason why the run failed; may be empty."""
        try:
            lines = self.path_of(run_id).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        messages = [line for line in lines if not line.startswith(BELOW_THE_MESSAGE)]
        return f"; its last words: {mask_secrets(messages[-1])[:LONGEST_QUOTE]}" if messages else ""

    def delete_old(self) -> None:
        oldest = time.time() - KEEP_S
        for log in self._folder.glob("*.log"):
            if log.stat().st_mtime < oldest:
                log.unlink(missing_ok=True)

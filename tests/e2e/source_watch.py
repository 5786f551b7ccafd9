"""Which executions query the source at the same moment, seen at the source itself while a platform runs."""

import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Engine, text

from tests.e2e.platform_up import processes_of

PAUSE_S = 0.03
_MARK = re.compile(r"/\* platform task (\d+) run ")


class SourceWatch:
    """Looks again and again, in a thread. On MySQL it sees tasks, on SQLite the processes that hold a read lock."""

    def __init__(self, engine: Engine, file: Path | None) -> None:
        self.seen: set[frozenset[int]] = set()
        self._engine = engine
        self._inode = None if file is None else str(os.stat(file).st_ino)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def tasks(self, task_of_process: Mapping[int, int]) -> list[set[int]]:
        """The sets of tasks that were seen side by side."""
        if self._inode is None:
            return [set(one) for one in self.seen]
        return [{task_of_process[pid] for pid in one if pid in task_of_process} for one in self.seen]

    def _watch(self) -> None:
        while not self._stop.is_set():
            found = frozenset(self._statements() if self._inode is None else self._readers())
            if found:
                self.seen.add(found)
            time.sleep(PAUSE_S)

    def _statements(self) -> set[int]:
        """Tests beside this one have other databases on the server, and tasks with the same numbers."""
        with self._engine.connect() as connection:
            rows = connection.execute(text("SHOW FULL PROCESSLIST")).mappings().all()
        mine = [str(row["Info"] or "") for row in rows if row["db"] == self._engine.url.database]
        return {int(mark[1]) for statement in mine if (mark := _MARK.match(statement))}

    def _readers(self) -> set[int]:
        found = set()
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "->" not in fields and fields[3] == "READ" and fields[5].rpartition(":")[2] == self._inode:
                found.add(int(fields[4]))
        return found


def fork_server_of(home: Path) -> int | None:
    """The process from which the runs of this home are forked."""
    for pid in processes_of(home):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            above = Path(f"/proc/{parent}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        # its children, the runs, have the same command line
        if "fork_server_process" in command and "fork_server_process" not in above:
            return pid
    return None

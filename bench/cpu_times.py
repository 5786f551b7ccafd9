"""Processor time per event of the API and of the servers that it uses, read from /proc."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.serving import Serving


class CpuTimes:
    """Processor time of the API processes and of the servers that listen on these ports, per event of a measurement."""

    def __init__(self, apis: Sequence[Serving], ports: Mapping[str, int]) -> None:
        self._pids = {"API": [api.process.pid for api in apis]}
        self._pids |= {name: pids for name, port in ports.items() if (pids := _listeners(port))}
        self._before = self._read()

    def per_event(self, events: float) -> str:
        now = self._read()
        used = {name: (now[name] - self._before[name]) * 1000 / max(events, 1) for name in now}
        parts = "   ".join(f"{name} {ms:.2f} ms" for name, ms in used.items())
        return f"CPU per event: {parts}   all {sum(used.values()):.2f} ms"

    def _read(self) -> dict[str, float]:
        return {name: sum(_cpu_s(pid) for pid in pids) for name, pids in self._pids.items()}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _listeners(port: int) -> list[int]:
    """The processes that listen on this port."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(descriptor) in sockets for descriptor in (folder / "fd").iterdir()):
                found.append(int(folder.name))
        except OSError:  # a process of somebody else, or one that has just ended
            continue
    return found

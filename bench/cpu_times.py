"""Processor time per event of the API and of the servers that it uses, and what else ran meanwhile, read from /proc."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.serving import Serving

TICKS = os.sysconf("SC_CLK_TCK")
SHOWN_NEIGHBOURS = 6
WHAT_COUNTS = """\
CPU per event: user and system time of the API processes and of the processes that listen on the ports of MySQL and
Neo4j, with all that these do in the background, during the measured seconds, divided by the events that were answered.
It does not count the load generator, which is printed beside it, and the kernel's own threads. "Others" is the share
of the machine's processors that went to everything else that ran. An embedded place has no servers to count."""


@dataclass(frozen=True)
class Used:
    """Milliseconds of processor time per event, by name. others: the share of the machine that all else took."""

    each_ms: Mapping[str, float]
    others: float

    @property
    def all_ms(self) -> float:
        return sum(self.each_ms.values())

    def __str__(self) -> str:
        parts = "   ".join(f"{name} {ms:.2f} ms" for name, ms in self.each_ms.items())
        return f"CPU per event: {parts}   all {self.all_ms:.2f} ms   others {self.others:.0%}"


class CpuTimes:
    """Processor time of the API processes and of the servers that listen on these ports, since the last `begin`."""

    def __init__(self, apis: Sequence[Serving], ports: Mapping[str, int]) -> None:
        self._pids = {"API": [api.process.pid for api in apis]}
        self._pids |= {name: pids for name, port in ports.items() if (pids := _listeners(port))}
        self.not_counted = [name for name in ports if name not in self._pids]
        self.begin()

    def begin(self) -> None:
        self._before, self._machine, self._own = self._read(), _machine_s(), _cpu_s(os.getpid())

    def per_event(self, events: float) -> Used:
        now = self._read()
        used = {name: now[name] - self._before[name] for name in now}
        busy, idle = (now_s - before for now_s, before in zip(_machine_s(), self._machine, strict=True))
        others = busy - sum(used.values()) - (_cpu_s(os.getpid()) - self._own)
        each_ms = {name: seconds * 1000 / max(events, 1) for name, seconds in used.items()}
        return Used(each_ms, max(0.0, others) / max(busy + idle, 0.01))

    def _read(self) -> dict[str, float]:
        return {name: sum(_cpu_s(pid) for pid in pids) for name, pids in self._pids.items()}


class Neighbours:
    """What else this machine does: the processes that used most processor time between the start and `shown`."""

    def __init__(self) -> None:
        self._before = _all_processes()

    def shown(self) -> str:
        spent: Counter[str] = Counter()
        for (pid, name), seconds in _all_processes().items():
            if pid != os.getpid():
                spent[name] += round(seconds - self._before.get((pid, name), 0.0))
        most = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in spent.most_common(SHOWN_NEIGHBOURS) if seconds)
        load = " ".join(Path("/proc/loadavg").read_text().split()[:3])
        return f"processor time of what ran meanwhile and still runs: {most or 'none'}   (load average {load})"


def _stat(pid: int | str) -> tuple[str, float]:
    """The program's name and its processor time in seconds."""
    before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    fields = after.split()
    return before.partition("(")[2], (int(fields[11]) + int(fields[12])) / TICKS


def _cpu_s(pid: int) -> float:
    return _stat(pid)[1]


def _machine_s() -> tuple[float, float]:
    """Seconds in which the processors of the machine were busy, and in which they were not."""
    user, nice, system, idle, waiting, *more = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + sum(more)) / TICKS, (idle + waiting) / TICKS


def _all_processes() -> dict[tuple[int, str], float]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, seconds = _stat(folder.name)
        except OSError:  # a process that has just ended
            continue
        found[int(folder.name), name] = seconds
    return found


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

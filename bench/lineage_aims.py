"""What the lineage sink shall reach, and how a benchmark prints a number beside its aim."""

from dataclasses import dataclass
from typing import Literal

from bench.lineage_load import Measured

# What Marquez 0.51 took on the same kind of machine with the same events and 64 clients.
MARQUEZ_ELSEWHERE = Measured(rate=53.0, p50_ms=1085.0, p99_ms=3250.0, failed=0, load_ms=0.0)


@dataclass(frozen=True)
class Aim:
    words: Literal["at least", "at most", "below"]
    limit: float

    def line(self, what: str, value: float) -> str:
        is_met = {"at least": value >= self.limit, "at most": value <= self.limit, "below": value < self.limit}
        judged = "met" if is_met[self.words] else "missed"
        return f"    {what:<38} {value:8.2f}   (aim: {self.words} {self.limit:g}; {judged})"


# events/s, of those of Marquez: at 64 clients with one process; with events that mostly repeat and two processes
TIMES_MARQUEZ = Aim("at least", 6)
TIMES_MARQUEZ_REPEATING = Aim("at least", 10)
# a p99, of the p50 of Marquez
P99_OF_MARQUEZ_P50 = Aim("below", 1)
CPU_MS = Aim("below", 4)
# a p99 beside the wide events of another tenant, of that without
BESIDE_WIDE = Aim("at most", 2)
TWO_PROCESSES = Aim("at least", 1)
NO_503 = Aim("at most", 0)
MEMORY_MB = Aim("below", 300)
GROUP_COMMIT = Aim("at least", 8)
OF_NOTHING_WRITTEN = Aim("at least", 0.3)
WITH_MANY_ROWS = Aim("at least", 0.8)

"""A door over a gate in SQLite whose waiting takes no time; the network is real."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.http_door.door import Door
from platform_defs.http_door.policy import LONGEST_TIMEOUT_S, LONGEST_TOTAL_S, Passage, Timeouts
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.policy import RatePolicy
from tests.conftest import SharedDatabases, _empty
from tests.rate_gate.clocks import StillClock

FAST = RatePolicy(refill_per_s=100, burst=50)
# A busy machine is not a fault of the source: what is about a limit sets that one alone.
UNHURRIED = Timeouts(connect_s=LONGEST_TIMEOUT_S, read_s=LONGEST_TIMEOUT_S, total_s=LONGEST_TOTAL_S)


@dataclass(frozen=True)
class Opened:
    door: Door
    gate: RateGate
    clock: StillClock
    engine: Engine


def passage(**wanted: Any) -> Passage:
    return Passage(**{"key": "source/works", "rate": FAST, "timeouts": UNHURRIED, **wanted})


@pytest.fixture
def opened(migrated: SharedDatabases) -> Iterator[Opened]:
    engine = migrated.empty("sqlite")
    clock = StillClock()
    gate = RateGate(engine, clock=clock, now_us=clock.now_us, seed=1)
    with Door(gate, seed=1) as door:
        yield Opened(door, gate, clock, engine)
    _empty(engine)

"""Harvests one window in a process of its own, for tests that kill it."""

import sys
from dataclasses import replace
from datetime import datetime, timedelta

from platform_defs.http_door.door import Door
from platform_defs.ingest.spec.model import Spec
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.store.engine import open_engine
from tests.ingest.demo.harvest import Harvester


def without_token_life(spec: Spec) -> Spec:
    """The second process lives an hour later, when the first one's lease is over: its tokens shall still be valid."""
    return replace(spec, pagination=replace(spec.pagination, token_ttl=timedelta(days=1)))


def harvest_window(database: str, code: str, now: datetime, page_size: int) -> None:
    engine, gate_engine = open_engine(database), open_gate_engine(database)
    overrides = {"pagination.page_size": page_size}
    with Door(RateGate(gate_engine)) as door:
        harvester = Harvester(engine, door, overrides, now=now, change=without_token_life)
        [result] = harvester.harvest(code)
    sys.exit(0 if result.is_complete else 1)

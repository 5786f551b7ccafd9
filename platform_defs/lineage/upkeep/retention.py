"""What the sink forgets, and when: raw events, counted runs, dead letters, and the graph's tombstones."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine

from platform_defs.access.tenants import list_tenants
from platform_defs.graph.port import Graph
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.sink import raw_events, run_counts
from platform_defs.lineage.sink.apply import prune


@dataclass(frozen=True, slots=True)
class Retention:
    """Days; 0 keeps for ever."""

    events: int
    tombstones: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    events: int
    runs: int
    dead_letters: int
    tombstones: int


def forget(engine: Engine, graph: Graph, retention: Retention, at: datetime) -> Forgotten:
    """Idempotent and in bounded transactions, so it may be ended at any point."""
    events = runs = letters = 0
    if retention.events:
        before = at - timedelta(days=retention.events)
        events = raw_events.delete_older(engine, before)
        runs = run_counts.forget_older(engine, before)
    if retention.dead_letters:
        letters = dead_letters.delete_older(engine, at - timedelta(days=retention.dead_letters))
    return Forgotten(events, runs, letters, prune_tombstones(engine, graph, retention.tombstones, at))


def prune_tombstones(engine: Engine, graph: Graph, days: int, at: datetime) -> int:
    before = at - timedelta(days=days)
    return sum(prune(graph.for_tenant(tenant.id), before) for tenant in list_tenants(engine))

"""Retention: deletes raw events, counted runs, dead letters and the graph's tombstones when they are old enough."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine

from platform_defs.access.tenants import list_tenants
from platform_defs.graph.port import Graph
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.sink.apply import prune_graph
from platform_defs.lineage.sink.rows import raw_events, run_counts


@dataclass(frozen=True, slots=True)
class Retention:
    """Days to keep each; 0 keeps events and dead letters for ever."""

    events: int
    tombstones: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """How many of each were deleted."""

    events: int
    runs: int
    dead_letters: int
    tombstones: int


def delete_expired(engine: Engine, graph: Graph, retention: Retention, at: datetime) -> RetentionReport:
    """Deletes in bounded transactions and is idempotent, so it may be interrupted at any point and run again."""
    events = runs = letters = 0
    if retention.events:
        before = at - timedelta(days=retention.events)
        events = raw_events.delete_older(engine, before)
        runs = run_counts.delete_older(engine, before)
    if retention.dead_letters:
        letters = dead_letters.delete_older(engine, at - timedelta(days=retention.dead_letters))
    tombstones = prune_tombstones(engine, graph, retention.tombstones, at, speaker_days=retention.events)
    return RetentionReport(events, runs, letters, tombstones)


def prune_tombstones(engine: Engine, graph: Graph, days: int, at: datetime, *, speaker_days: int = 0) -> int:
    """Forgets drops, renames, and last types of columns that are gone, older than `days` days, in every tenant's graph.

    Also forgets the runs of jobs that have been silent for `speaker_days`; 0 keeps them. What they said stays.
    """
    before = at - timedelta(days=days)
    silent = at - timedelta(days=speaker_days) if speaker_days else None
    return sum(
        prune_graph(graph.for_tenant(tenant.id), before, speakers_before=silent) for tenant in list_tenants(engine)
    )

"""The sensor that keeps the tables of the lineage graph which Dagster shows: which they are and what they depend on."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

from dagster import DefaultSensorStatus, Definitions, SensorEvaluationContext, SensorResult, SkipReason, sensor

from platform_defs.graph.open import open_graph
from platform_defs.lineage.tables.seen import forget_older, newest_event, note_new_tables
from platform_defs.lineage.tables.shown import refresh
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from sensors.ticks import noted_tick

# A change makes the code server load all definitions again, which takes it seconds.
CHANGES_EVERY = timedelta(seconds=30)
# The graph changes without new events too: the recovery applies old ones, and rebuilds.
LOOKS_EVERY = timedelta(minutes=2)
# How many tables are remembered for each that is shown: some of them were dropped or are of a tenant that is not shown.
_REMEMBERED = 5


@sensor(
    # Less than the five seconds between two looks of Dagster's daemon, or each second look would come too early.
    minimum_interval_seconds=4,
    default_status=DefaultSensorStatus.RUNNING,
    description="Shows tables of the lineage graph, those with the newest events, as assets with their dependencies.",
)
def lineage_tables(context: SensorEvaluationContext) -> SensorResult | SkipReason:
    """While the graph is away the tick fails, and Dagster goes on showing what the graph said before."""
    settings = Settings.load()
    with noted_tick(lineage_tables.name) as engine:
        if not settings.lineage_observe or not settings.lineage_tables:
            return SkipReason("PLATFORM_LINEAGE_OBSERVE is off, or PLATFORM_LINEAGE_TABLES is 0")
        events = note_new_tables(engine)
        newest, now = read(engine, newest_event), datetime.now(UTC)
        if not is_due(context.cursor, newest, now):
            return SkipReason(f"read {events} events; the tables were compared with the graph a moment ago")
        with closing(open_graph(settings, engine)) as graph:
            changed = refresh(engine, graph, limit=settings.lineage_tables, without=settings.unobserved_tenants)
        forget_older(engine, _REMEMBERED * settings.lineage_tables)
    reason = "the tables or their dependencies changed: the code server loads them" if changed else "nothing changed"
    return SensorResult(skip_reason=SkipReason(reason), cursor=json.dumps([newest, now.isoformat()]))


def is_due(cursor: str | None, newest: int, now: datetime) -> bool:
    """Whether to compare with the graph. The cursor has the newest event and the time of the last comparison."""
    if not cursor:
        return True
    event, looked_at = json.loads(cursor)
    since = now - datetime.fromisoformat(looked_at)
    # A look before the first event changed nothing, so nothing has to wait for it.
    return since >= LOOKS_EVERY or (event != newest and (since >= CHANGES_EVERY or not event))


def definitions() -> Definitions:
    return Definitions(sensors=[lineage_tables])

"""The sensor that sends OpenLineage events of chains to the platform's own sink."""

import json
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime

from dagster import (
    DefaultSensorStatus,
    Definitions,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from platform_defs.chain_lineage import Position, choose_tenant, event_key, first_position, new_events, send_events
from platform_defs.graph.open import open_graph
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from sensors.ticks import noted_tick

INTERVAL_S = 10
_REMEMBERED = 20_000
# Events that this process has sent. After a restart some are sent again, and the sink stores none of them twice.
_sent: OrderedDict[tuple[str, str, str], None] = OrderedDict()


@sensor(
    minimum_interval_seconds=INTERVAL_S,
    default_status=DefaultSensorStatus.RUNNING,
    description="For the platform itself: sends lineage events of runs and nodes of chains.",
)
def chain_lineage(context: SensorEvaluationContext) -> SensorResult | SkipReason:
    """While a store is away the tick fails, and a later one goes on where it left off."""
    settings = Settings.load()
    with noted_tick(chain_lineage.name) as engine:
        if not settings.chain_lineage:
            return SkipReason("PLATFORM_CHAIN_LINEAGE is off")
        tenant = choose_tenant(engine, settings.chain_lineage_tenant)
        if tenant is None:
            return SkipReason(
                "no tenant: expected PLATFORM_CHAIN_LINEAGE_TENANT to name one on record, or one alone to be on record"
            )
        now = datetime.now(UTC)
        before = (
            Position.from_json(json.loads(context.cursor)).not_after(now)
            if context.cursor
            else read(engine, lambda connection: first_position(connection, now))
        )
        found, after = read(engine, lambda connection: new_events(connection, before))
        events = [event for event in found if event_key(event) not in _sent]
        if events:
            with closing(open_graph(settings, engine)) as graph:
                send_events(engine, graph, tenant, events)
    _remember(event_key(event) for event in events)
    return SensorResult(
        skip_reason=SkipReason(f"sent {len(events)} events to tenant {tenant.id}"), cursor=json.dumps(after.as_json())
    )


def _remember(keys: Iterable[tuple[str, str, str]]) -> None:
    for key in keys:
        _sent[key] = None
    while len(_sent) > _REMEMBERED:
        _sent.popitem(last=False)


def definitions() -> Definitions:
    return Definitions(sensors=[chain_lineage])

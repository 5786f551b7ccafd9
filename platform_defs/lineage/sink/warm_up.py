"""Warms up a graph store that has just started: merges events of a made-up tenant, and rolls everything back.

Neo4j plans and compiles every statement when it first sees it, and the Java machine below it is slow for its first
seconds. Without this the first group of real events would take longer than its transaction may.
"""

import random
import time
from collections.abc import Callable

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import version_of

ROUNDS = 20
# a round that takes less than this many seconds is one of a warm store
WARM_S = 0.3
_PRODUCER = "https://github.com/apache/gravitino"


def warm_up(graph: Graph, *, stop: Callable[[], bool] = lambda: False) -> bool:
    """Returns True when the store is warm, False if it was told to stop before. Raises if the store does not answer."""
    # no tenant has a negative id, and two processes that warm up at once do not wait for each other's lock
    id = -random.SystemRandom().randrange(1, 2**62)
    tenant = Tenant(id, f"warm-up{id}", "Warm-up")
    events = [_facts(number) for number in range(8)]

    def rehearse(store: GraphStore) -> None:
        for some in (events[:3], events[3:], events[:2]):
            apply_events(store, tenant, some, {f"sql:{number}": 1 for number in range(3)})

    fast = 0
    for _ in range(ROUNDS):
        if stop():
            return False
        began = time.monotonic()
        graph.rehearse(id, rehearse)
        fast = fast + 1 if time.monotonic() - began < WARM_S else 0
        if fast == 2:
            break
    return True


def _facts(number: int) -> EventFacts:
    """Runs of two jobs with column lineage, and a table of a catalog that is created, changed and dropped."""
    fields = [{"name": f"c{at}", "type": "int"} for at in range(3 + number % 2)]
    lineage = {
        field["name"]: {"inputFields": [{"namespace": "w", "name": "s.a", "field": field["name"]}]} for field in fields
    }
    event = {
        "eventType": ("START", "COMPLETE")[number % 2],
        "eventTime": f"2026-01-01T00:00:0{number}Z",
        "run": {"runId": f"r{number // 2}"},
        "job": {"namespace": "w", "name": f"j{number % 3}", "facets": {"sql": {"query": "select 1"}}},
        "inputs": [{"namespace": "w", "name": "s.a", "facets": {"schema": {"fields": fields}}}],
        "outputs": [
            {
                "namespace": "w",
                "name": "s.b",
                "facets": {"schema": {"fields": fields}, "columnLineage": {"fields": lineage}},
            }
        ],
    }
    source = SourceType.COMPUTE
    if number in (2, 5, 7):
        source = SourceType.GRAVITINO
        operation = {2: "create_table", 5: "alter_table", 7: "drop_table"}[number]
        table = {"namespace": "gravitino://m/c", "name": "s.t", "facets": {"schema": {"fields": fields}}}
        event |= {
            "eventType": "COMPLETE",
            "producer": _PRODUCER,
            "job": {"namespace": "gravitino://m", "name": f"gravitino.{operation}"},
            "inputs": [],
            "outputs": [table],
        }
    parsed = parse_event(event)
    return EventFacts(version_of(parsed.event_time, parsed.payload_hash), facts_of(parsed, source).facts)

"""Warms up a graph store that has just started: merges events of a made-up tenant, and rolls everything back.

Neo4j plans and compiles every statement when it first sees it, and again for lists of another order of magnitude; and
the Java machine below it is slow for its first seconds. Without this the first group of real events would take longer
than its transaction may.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import version_of

# How many jobs the groups have in which everything is planned. Each writes two tables of two or three columns, so that
# lists of one, of up to ten, up to a hundred and up to a thousand nodes and edges occur in each kind of statement.
SIZES = (1, 4, 40, 120)
# Then a group of USUAL_SIZE jobs is repeated until the store is warm, at most ROUNDS times.
USUAL_SIZE, ROUNDS = 40, 20
# A store is warm if each of the last two rounds took less than this, or if the last three were hardly faster than those
# before them: on a busy machine, more rounds would not make it faster.
WARM_S = 0.5
_PRODUCER = "https://github.com/apache/gravitino"


def warm_up(graph: Graph, *, stop: Callable[[], bool] = lambda: False) -> bool:
    """Returns True when the store is warm, False if it was told to stop before. Raises if the store does not answer."""
    # no tenant has a negative id, and two processes that warm up at once do not wait for each other's lock
    id = -random.SystemRandom().randrange(1, 2**62)
    tenant = Tenant(id, f"warm-up{id}", "Warm-up")

    def rehearse(groups: Sequence[Sequence[EventFacts]]) -> float:
        """One transaction, which is rolled back; returns how long it took."""
        began = time.monotonic()

        def work(store: GraphStore) -> None:
            for events in groups:
                apply_events(store, tenant, events, {f"sql:{number}": 1 for number in range(len(events))})

        graph.rehearse(id, work)
        return time.monotonic() - began

    few = [_facts(number) for number in range(8)]
    for groups in ([few[:3], few[3:], few[:2]], *(_runs_of_jobs(size, runs=4) for size in SIZES)):
        if stop():
            return False
        rehearse(groups)
    usual = _runs_of_jobs(USUAL_SIZE, runs=2)
    took: list[float] = []
    while len(took) < ROUNDS and not is_warm(took):
        if stop():
            return False
        took.append(rehearse(usual))
    return True


def is_warm(took: Sequence[float]) -> bool:
    """By the seconds that the rounds took."""
    if len(took) >= 2 and max(took[-2:]) < WARM_S:
        return True
    return len(took) > 3 and min(took[-3:]) > 0.8 * min(took[:-3])


def _runs_of_jobs(count: int, runs: int) -> list[list[EventFacts]]:
    """A group for each run of all jobs: the second run says the same again, the third one says other edges.

    The fourth run no longer knows a column.
    """
    return [[_run_of_job(job, run) for job in range(count)] for run in range(runs)]


def _run_of_job(job: int, run: int) -> EventFacts:
    columns = ("a", "b")
    known = columns if run == 3 else (*columns, "c")
    namespace = f"w{job}"
    read, written = ("s.in", "s.out") if run < 2 else ("s.out", "s.in")
    schemas = [{"schema": {"fields": [{"name": name, "type": "int"} for name in names]}} for names in (columns, known)]
    lineage = {name: {"inputFields": [{"namespace": namespace, "name": read, "field": name}]} for name in columns}
    event = {
        "eventType": "COMPLETE",
        "eventTime": f"2026-01-01T00:00:0{run}Z",
        "run": {"runId": f"r{run}"},
        "job": {"namespace": namespace, "name": "j"},
        "inputs": [{"namespace": namespace, "name": read, "facets": schemas[0]}],
        "outputs": [
            {"namespace": namespace, "name": written, "facets": {**schemas[1], "columnLineage": {"fields": lineage}}}
        ],
    }
    return _facts_of(event, SourceType.COMPUTE)


def _facts(number: int) -> EventFacts:
    """Runs of two jobs with column lineage, and a table of a catalog that is created, changed and dropped."""
    fields = [{"name": f"c{at}", "type": "int"} for at in range(3 + number % 2)]
    lineage = {
        field["name"]: {"inputFields": [{"namespace": "w", "name": "s.a", "field": field["name"]}]} for field in fields
    }
    event: dict[str, Any] = {
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
    return _facts_of(event, source)


def _facts_of(event: dict[str, Any], source: SourceType) -> EventFacts:
    parsed = parse_event(event)
    return EventFacts(version_of(parsed.event_time, parsed.payload_hash), facts_of(parsed, source).facts)

"""The sink's own metrics: events by tenant and outcome, writes by store, groups, queue, threads and connections."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from platform_defs.graph.neo4j import Neo4jGraph

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class SinkMetrics:
    """Labels hold known tenants, stores and outcomes only: text that a client sends must not create time series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "platform_lineage_events",
            "Lineage events by tenant and outcome: accepted, refused, rate_limited, unavailable, failed.",
            ["tenant", "outcome"],
            registry=registry,
        )
        self.writes = Counter(
            "platform_lineage_writes",
            "Lineage events written to a store, by whether it succeeded.",
            ["store", "outcome"],
            registry=registry,
        )
        self.write_seconds = Histogram(
            "platform_lineage_write_seconds",
            "Time that a store takes for a group.",
            ["store"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.group_events = Histogram(
            "platform_lineage_group_events", "Events of a group.", buckets=SIZES, registry=registry
        )
        self.unknown_operations = Counter(
            "platform_lineage_unknown_operations",
            "Events whose operation is not known: stored, without a change of the graph.",
            ["tenant"],
            registry=registry,
        )
        self.events_ahead = Counter(
            "platform_lineage_events_ahead",
            "Events that claim a time more than a day ahead of their arrival; they are ordered by their arrival.",
            ["tenant"],
            registry=registry,
        )
        self.rebuilds = Counter(
            "platform_lineage_rebuilds_requested",
            "Groups with events for which the tenant's graph must be rebuilt; the log says why.",
            ["tenant"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "platform_lineage_dead_letters", "Refused events that were kept.", registry=registry
        )
        self.dead_letters_omitted = Counter(
            "platform_lineage_dead_letters_omitted",
            "Refused events that were not kept, because their request had too many of them.",
            registry=registry,
        )
        self.queue_events = Gauge(
            "platform_lineage_queue_events", "Events that wait or are written.", registry=registry
        )
        self.queue_bytes = Gauge("platform_lineage_queue_bytes", "Their bytes.", registry=registry)
        self.breaker_open = Gauge(
            "platform_lineage_breaker_open", "1 while a store is known to be down.", registry=registry
        )
        self.threads_busy = Gauge(
            "platform_lineage_threads_busy", "Threads of the sink at work.", ["pool"], registry=registry
        )
        self.connections = Gauge(
            "platform_lineage_pool_connections",
            "Connections of the sink's database pool that are in use.",
            registry=registry,
        )
        self.connections_max = Gauge(
            "platform_lineage_pool_connections_max", "Size of the sink's database pool.", registry=registry
        )

        self.graph_connections = Gauge(
            "platform_lineage_graph_pool_connections",
            "Connections of the sink's Neo4j pool that are in use.",
            registry=registry,
        )
        self.graph_connections_max = Gauge(
            "platform_lineage_graph_pool_connections_max", "Size of the sink's Neo4j pool.", registry=registry
        )

    def watch_graph_pool(self, graph: Neo4jGraph) -> None:
        self.graph_connections.set_function(lambda: graph.connections_in_use)
        self.graph_connections_max.set(graph.pool_size)

    def watch_pool(self, in_use: Callable[[], int], size: int) -> None:
        self.connections.set_function(in_use)
        self.connections_max.set(size)


@contextmanager
def measure_write(metrics: SinkMetrics, store: str, events: int) -> Iterator[None]:
    """Measures a write of a number of events to a store: how long it takes and whether it succeeds."""
    started = time.perf_counter()
    outcome = "failed"
    busy = metrics.threads_busy.labels(store)
    busy.inc()
    try:
        yield
        outcome = "ok"
    finally:
        busy.dec()
        metrics.writes.labels(store, outcome).inc(events)
        metrics.write_seconds.labels(store).observe(time.perf_counter() - started)

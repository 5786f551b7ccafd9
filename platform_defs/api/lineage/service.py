"""The lineage sink of the API process, with connection pools and short timeouts of its own.

A store that hangs must not make clients wait longer than the request's deadline.
"""

import logging
import math
from collections.abc import Generator, Sequence
from functools import partial
from typing import TypeVar

from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from platform_defs.access.principal import Principal
from platform_defs.api.http.threads import FairThreads
from platform_defs.api.lineage.warmth import Warmth
from platform_defs.api.system import Service
from platform_defs.errors import PlatformError
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphLost
from platform_defs.graph.neo4j import Neo4jGraph, Timeouts
from platform_defs.graph.open import open_graph
from platform_defs.graph.port import Graph
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.commit import Committer, EmbeddedCommitter, ParallelCommitter
from platform_defs.lineage.sink.graph_watch import GraphWatch
from platform_defs.lineage.sink.limits import Limits, TokenBuckets
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.pace import Pace
from platform_defs.lineage.sink.sink import Sink
from platform_defs.lineage.sink.store_health import DATABASE, GRAPH, StoreHealth
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_if_small
from platform_defs.settings import Settings
from platform_defs.store.engine import Patience, open_engine, server_packet_limit, transact
from platform_defs.store.types import is_mysql

log = logging.getLogger(__name__)

T = TypeVar("T")

POOL_SIZE = 4
# Parsing events keeps a processor busy: more threads than processors would only take turns.
READERS = 2
# Reading a larger body takes milliseconds or seconds: these have a thread of their own, for which no small one waits.
LARGE_BODY = 16 * 1024
# Dead letters of one request. A client whose events are all refused usually makes the same mistake in all of them.
MAX_LETTERS = 100
# the default of max_allowed_packet on the oldest server that we support
LEAST_PACKET = 4 * 1024 * 1024
# Timeouts as shares of the request's deadline: if a store does not answer, the client gets its 503 before the deadline.
STATEMENT, POOL, RETRY = 3 / 4, 1 / 2, 1 / 4


class LineageService(Service):
    """Intake, sink and dead letters for POST /api/openlineage.

    `engine` and `graph` are the ones that the whole process uses; rebuilds, which may take longer, run on them.
    """

    def __init__(self, settings: Settings, engine: Engine, graph: Graph, registry: CollectorRegistry) -> None:
        self.deadline_s = settings.lineage_deadline_s
        self.metrics = SinkMetrics(registry)
        self._readers = FairThreads(READERS, "lineage-reader")
        # One wake-up of the event loop is nothing beside a large body.
        self._large_readers = FairThreads(1, "lineage-large", at_once=1)
        self.writers = CapacityLimiter(READERS)
        deadline = settings.lineage_deadline_s
        self._engine = open_engine(
            engine.url,
            pool_size=POOL_SIZE,
            socket_timeout=math.ceil(deadline * STATEMENT),
            patience=Patience(
                connect=math.ceil(deadline * POOL), pool=deadline * POOL, sqlite_busy=deadline * STATEMENT
            ),
        )
        assert isinstance(self._engine.pool, QueuePool)
        self.metrics.watch_pool(self._engine.pool.checkedout, POOL_SIZE)
        timeouts = Timeouts(
            connect=deadline * RETRY,
            acquire=deadline * POOL * STATEMENT,
            transaction=deadline * STATEMENT,
            retry=deadline * RETRY,
        )
        self._graph = open_graph(settings, self._engine, timeouts=timeouts)
        self.intake = Intake(KnownTenants(self._engine))
        self._warmth = Warmth(self._graph, settings.graph_url, needed=not isinstance(self._graph, EmbeddedGraph))
        pace = Pace()
        # A second lane for wide events only pays where two transactions can write at once: not in a file of SQLite.
        in_file = isinstance(self._graph, EmbeddedGraph) and not is_mysql(self._engine.dialect)
        committers = [self._committer(lane_pace) for lane_pace in ([None] if in_file else [None, pace])]
        self._graph_watch: GraphWatch | None = None
        if isinstance(self._graph, Neo4jGraph):
            self.metrics.watch_graph_pool(self._graph)
            self._graph_watch = GraphWatch(self._graph, self._warmth.lose)
        self.buckets = TokenBuckets(settings.lineage_tenant_rate, settings.lineage_tenant_burst)
        self.health = StoreHealth(
            {DATABASE: self._ping_database, GRAPH: self._ping_graph}, deadline, lambda: not self._warmth.is_lost
        )
        self.sink = Sink(
            committers,
            _limits(settings, engine),
            self.buckets,
            self.metrics,
            health=self.health,
            rebuild=partial(rebuild_if_small, engine, graph),
            pace=pace,
        )

    def _committer(self, pace: Pace | None) -> Committer:
        if isinstance(self._graph, EmbeddedGraph):
            return EmbeddedCommitter(self._engine, self.metrics, pace)
        return ParallelCommitter(self._engine, self._graph, self.metrics, self._warmth.lose, pace)

    def warmth(self) -> str:
        """For /readyz: the first events after a cold start would take longer than a request may."""
        return "ok" if self._warmth.is_warm else "the graph is warming up"

    async def read(self, principal: Principal, body: bytes, steps: Generator[None, None, T], *, seconds: float) -> T:
        """Reads a body in a thread, as FairThreads.run does; tenants take turns, at each step of the reading."""
        readers = self._large_readers if len(body) > LARGE_BODY else self._readers
        # the events of a key without a tenant name it themselves: the key has its turns then
        owner = principal.name if principal.tenant is None else principal.tenant.id
        return await readers.run(owner, steps, seconds=seconds)

    def keep_refusals(self, principal: Principal, refusals: Sequence[Refusal], *, omitted: int = 0) -> None:
        """Stores dead letters. If the database is down they are lost: the client gets its 400 all the same."""
        if omitted:
            log.warning("%d refused events of one request of %s are not kept", omitted, principal.name)
            self.metrics.dead_letters_omitted.inc(omitted)
        try:
            self.metrics.dead_letters.inc(dead_letters.store_refusals(self._engine, principal, refusals, attempts=1))
        except (PlatformError, SQLAlchemyError):
            log.warning("%d refused events could not be kept", len(refusals), exc_info=True)

    def _ping_database(self) -> None:
        """Raises if it does not answer. It uses a write transaction, which a locked SQLite file does not grant."""
        transact(self._engine, lambda connection: connection.execute(text("SELECT 1")), attempts=1)

    def _ping_graph(self) -> None:
        try:
            self._graph.ping()
        except GraphLost:
            # While the database is away no event gets as far as the graph, whose server may be restarted meanwhile.
            self._warmth.lose()
            raise

    def close(self) -> None:
        if self._graph_watch is not None:
            self._graph_watch.close()
        self._warmth.close()
        self.sink.close()
        self._readers.close()
        self._large_readers.close()
        self._graph.close()
        self._engine.dispose()


def _limits(settings: Settings, engine: Engine) -> Limits:
    try:
        packet = server_packet_limit(engine)
    except (PlatformError, SQLAlchemyError):
        log.warning("the database does not say how large a statement may be; expecting the least", exc_info=True)
        packet = LEAST_PACKET
    # escaping may double the length of a text, so a group may hold less than half of what the server takes
    group_bytes = settings.lineage_group_bytes if packet is None else min(settings.lineage_group_bytes, packet // 2 - 1)
    return Limits(
        group_events=settings.lineage_group_events,
        group_bytes=group_bytes,
        group_facts=settings.lineage_group_facts,
        linger_s=settings.lineage_linger_ms / 1000,
        deadline_s=settings.lineage_deadline_s,
        queue_events=settings.lineage_queue_events,
        queue_bytes=settings.lineage_queue_bytes,
    )

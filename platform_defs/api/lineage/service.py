"""The sink as the API process runs it: its own pools with short timeouts, so that no store can hold a client up."""

import logging
import math
from collections.abc import Sequence
from functools import partial

from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from platform_defs.access.principal import Principal
from platform_defs.errors import PlatformError
from platform_defs.graph.neo4j import Timeouts
from platform_defs.graph.open import open_graph
from platform_defs.graph.port import Graph
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import StoredTenants
from platform_defs.lineage.sink.commit import Committer, EmbeddedCommitter, ParallelCommitter
from platform_defs.lineage.sink.limits import Limits, TokenBuckets
from platform_defs.lineage.sink.metrics import Measures
from platform_defs.lineage.sink.sink import Sink
from platform_defs.lineage.upkeep.recovery import rebuild_if_small
from platform_defs.settings import Settings
from platform_defs.store.engine import Patience, open_engine, server_packet_limit, transact

log = logging.getLogger(__name__)

POOL_SIZE = 4
# Reading events is work for the processor: more threads than processors would only take turns.
READERS = 2
# Of one request; a client that sends nothing but mistakes makes the same one in all of its events.
MAX_LETTERS = 100
# What is rebuilt while a request waits; a larger tenant's graph is the runner's work.
REBUILD_AT_ONCE = 500
# max_allowed_packet where nobody raised it, on the oldest server we speak to
LEAST_PACKET = 4 * 1024 * 1024
# Parts of the time in which a request is answered: what waits longer than these is answered 503 before it ends.
STATEMENT, POOL, RETRY = 3 / 4, 1 / 2, 1 / 4


class LineageService:
    """What POST /api/openlineage needs; `engine` and `graph` are the process's own, for what may take longer."""

    def __init__(self, settings: Settings, engine: Engine, graph: Graph, registry: CollectorRegistry) -> None:
        self.deadline_s = settings.lineage_deadline_s
        self.measures = Measures(registry)
        self.readers = CapacityLimiter(READERS)
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
        self.measures.watch_pool(self._engine.pool.checkedout, POOL_SIZE)
        timeouts = Timeouts(
            connect=deadline * RETRY,
            acquire=deadline * POOL * STATEMENT,
            transaction=deadline * STATEMENT,
            retry=deadline * RETRY,
        )
        self._graph = open_graph(settings, self._engine, timeouts=timeouts)
        self.intake = Intake(StoredTenants(self._engine))
        committer: Committer = (
            EmbeddedCommitter(self._engine, self.measures)
            if settings.graph_url == "embedded"
            else ParallelCommitter(self._engine, self._graph, self.measures)
        )
        self.buckets = TokenBuckets(settings.lineage_tenant_rate, settings.lineage_tenant_burst)
        self.sink = Sink(
            committer,
            _limits(settings, engine),
            self.buckets,
            self.measures,
            rebuild=partial(rebuild_if_small, engine, graph, at_most=REBUILD_AT_ONCE),
            ping=self._ping,
        )

    def keep(self, principal: Principal, refusals: Sequence[Refusal], *, omitted: int = 0) -> None:
        """Into the dead letters; a store that is down must not turn a 400 into anything else."""
        if omitted:
            log.warning("%d refused events of one request of %s are not kept", omitted, principal.name)
            self.measures.dead_letters_omitted.inc(omitted)
        try:
            self.measures.dead_letters.inc(dead_letters.keep(self._engine, principal, refusals, attempts=1))
        except (PlatformError, SQLAlchemyError):
            log.warning("%d refused events could not be kept", len(refusals), exc_info=True)

    def _ping(self) -> None:
        """As a writer: a SQLite file that another process has locked does not answer."""
        transact(self._engine, lambda connection: connection.execute(text("SELECT 1")), attempts=1)
        self._graph.ping()

    def close(self) -> None:
        self.sink.close()
        self._graph.close()
        self._engine.dispose()


def _limits(settings: Settings, engine: Engine) -> Limits:
    try:
        packet = server_packet_limit(engine)
    except (PlatformError, SQLAlchemyError):
        log.warning("the database does not say how large a statement may be; expecting the least", exc_info=True)
        packet = LEAST_PACKET
    # escaping may double a text: what a group may hold stays below half of what the server takes
    group_bytes = settings.lineage_group_bytes if packet is None else min(settings.lineage_group_bytes, packet // 2 - 1)
    return Limits(
        group_events=settings.lineage_group_events,
        group_bytes=group_bytes,
        linger_s=settings.lineage_linger_ms / 1000,
        deadline_s=settings.lineage_deadline_s,
        queue_events=settings.lineage_queue_events,
        queue_bytes=settings.lineage_queue_bytes,
    )

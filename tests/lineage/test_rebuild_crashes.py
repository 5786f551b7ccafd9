"""A rebuild that dies, or that sleeps while another one takes over, leaves no graph that lacks events."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.access.tenants import DEMO_TENANT, Tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.model import BatchResult, Operation
from platform_defs.graph.port import GraphStore
from platform_defs.lineage.facts import weight_of
from platform_defs.lineage.sink.apply import ApplyResult, EventFacts, apply_events
from platform_defs.lineage.sink.commit import ParallelCommitter
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.upkeep import groups, rebuild_requests, recovery, recovery_failures
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now
from tests.lineage.test_rebuild import (
    AT_ONCE,
    applied,
    database,
    elsewhere,
    failing,
    item,
    new_metrics,
    store_raw,
    tables,
)
from tests.lineage_events import run_event

__all__ = ["database", "elsewhere"]


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Watched:
    """A graph that counts the writes of a rebuild. dies_after: the process dies after so many, 0 if it does not."""

    graph: EmbeddedGraph
    dies_after: int = 0
    writes: int = 0

    def for_tenant(self, tenant: int) -> Any:
        return _WatchedStore(self.graph.for_tenant(tenant), self)


class _WatchedStore:
    def __init__(self, store: GraphStore, watched: Watched) -> None:
        self._store = store
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        self._watched.writes += 1
        written = self._store.apply(operations)
        if self._watched.writes == self._watched.dies_after:
            raise Killed
        return written


def commit(engine: Engine, graph: EmbeddedGraph, table: str) -> None:
    committer = ParallelCommitter(engine, graph, new_metrics())
    committer.commit([item(engine, run_event(job=table, writes=(f"mart.{table}",)))])
    committer.flush()
    committer.close()


def test_an_operators_rebuild_that_dies_while_it_writes_is_ended_by_the_recovery(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    """What was applied while it read is undone by its first write, and marked as applied all the same."""
    commit(database, elsewhere, "first")
    store = elsewhere.for_tenant(DEMO_TENANT.id)
    read: list[int] = []

    def once(done: int) -> None:
        if not read:
            read.append(done)
            commit(database, elsewhere, "second")

    with pytest.raises(Killed):
        # nodes are deleted after edges
        rebuild_tenant(database, Watched(elsewhere, dies_after=2), DEMO_TENANT, progress=once)  # type: ignore[arg-type]
    assert all(applied(database))
    assert "second" not in tables(store)
    recover(database, elsewhere, patience=AT_ONCE)
    assert {"first", "second"} <= tables(store)
    assert rebuild_requests.list_open(database) == []


def test_a_rebuild_that_slept_while_another_one_ended_writes_nothing_that_it_had_read(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    """Its process may be ended at any moment after it wakes up: its lease is lost, and another runner has its work."""
    commit(database, elsewhere, "first")
    transact(database, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))
    read: list[int] = []

    def sleep(done: int) -> None:
        if not read:
            read.append(done)
            rebuild_tenant(database, elsewhere, DEMO_TENANT, keep_unexplained=True)
            commit(database, elsewhere, "second")

    watched = Watched(elsewhere)
    rebuild_tenant(database, watched, DEMO_TENANT, keep_unexplained=True, progress=sleep)  # type: ignore[arg-type]
    assert watched.writes == 0
    assert {"first", "second"} <= tables(elsewhere.for_tenant(DEMO_TENANT.id))
    assert rebuild_requests.list_open(database) == []


def test_what_is_requested_while_an_operators_rebuild_reads_is_rebuilt_after_it(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    commit(database, elsewhere, "first")
    elsewhere.for_tenant(DEMO_TENANT.id).clear()

    def request(done: int) -> None:
        transact(database, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))

    rebuild_tenant(database, elsewhere, DEMO_TENANT, progress=request)
    assert [one.tenant_id for one in rebuild_requests.list_open(database)] == [DEMO_TENANT.id]
    recover(database, elsewhere, patience=AT_ONCE)
    assert rebuild_requests.list_open(database) == []


def test_a_rebuild_that_ends_after_a_newer_one_opens_no_request_again(database: Engine) -> None:
    for _ in range(3):
        transact(database, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))
    rebuild_requests.answer_up_to(database, DEMO_TENANT.id, 3, first=None)
    rebuild_requests.answer_up_to(database, DEMO_TENANT.id, 2, first=None)
    assert rebuild_requests.list_open(database) == []


def test_the_recovery_writes_no_more_at_once_than_the_graph_takes_in_time(
    database: Engine, elsewhere: EmbeddedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would fail for ever, for all tenants, after a slow Neo4j had left many wide events behind."""
    store_raw(database, *(item(database, run_event(job=f"job{number}")) for number in range(5)))
    sizes: list[int] = []

    def apply(store: GraphStore, tenant: Tenant, events: Sequence[EventFacts], counts: Any) -> ApplyResult:
        sizes.append(len(events))
        return apply_events(store, tenant, events, counts)

    monkeypatch.setattr(recovery, "apply_events", apply)
    ((first, *_),) = raw_events.read_unapplied(database, before=now() + timedelta(minutes=1))
    monkeypatch.setattr(groups, "GROUP_FACTS", 2 * sum(map(weight_of, first.event_facts.facts)))
    assert recover(database, elsewhere, patience=AT_ONCE).applied == 5
    assert sizes == [2, 2, 1]


def test_an_event_that_cannot_be_applied_for_no_foreseen_reason_is_a_failure_that_is_shown(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    store_raw(database, item(database, run_event()))
    assert recover(database, failing(elsewhere, KeyError("nobody foresaw")), patience=AT_ONCE).waiting == 1
    failures = recovery_failures.read_failures(database)
    assert failures is not None
    assert "1 events cannot be applied and wait: KeyError" in failures.error
    assert recover(database, elsewhere, patience=AT_ONCE).applied == 1
    assert recovery_failures.read_failures(database) is None

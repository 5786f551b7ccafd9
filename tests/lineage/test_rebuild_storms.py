"""Events that need a rebuild and keep coming: each rebuild ends, and the next one brings what came meanwhile."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import find_tenant
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import StoredEvent
from platform_defs.lineage.upkeep import rebuild_requests, recovery_failures
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.store.metadata import now
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.test_symlinks import START, deliveries, expected, opened, path, place, ran
from tests.lineage.wire import at_catalog, facet, gravitino, schema

__all__ = ["deliveries", "open_graphs", "opened", "place"]
ARRIVED = START + timedelta(days=30)


def created(deliveries: Deliveries, minute: float, table: str) -> Arrival:
    id = deliveries.tenant.id
    made = at_catalog(f"s.{table}", id, schema=schema("x"), gravitino=names(deliveries))
    return _of_catalog(deliveries, "create_table", minute, made)


def renamed(deliveries: Deliveries, minute: float, table: str) -> Arrival:
    changes = [{"type": "RENAME_TABLE", "newName": f"{table}_moved"}]
    moved = at_catalog(f"s.{table}", deliveries.tenant.id, gravitino=names(deliveries) | {"changes": changes})
    return _of_catalog(deliveries, "alter_table", minute, moved)


def names(deliveries: Deliveries) -> dict[str, object]:
    return facet(deliveries.tenant.id, tenantCode=deliveries.tenant.code, tenantName=deliveries.tenant.name)


def _of_catalog(deliveries: Deliveries, operation: str, minute: float, dataset: dict[str, object]) -> Arrival:
    time = (START + timedelta(minutes=minute)).isoformat()
    raw = gravitino(operation, dataset, tenant=deliveries.tenant.id, eventTime=time)
    return Arrival(raw, ARRIVED, SourceType.GRAVITINO)


def open_requests(deliveries: Deliveries) -> bool:
    return deliveries.tenant.id in {one.tenant_id for one in rebuild_requests.list_open(deliveries.engine)}


def rebuild(deliveries: Deliveries) -> None:
    tenant = find_tenant(deliveries.engine, deliveries.tenant.id)
    assert tenant is not None
    rebuild_tenant(deliveries.engine, deliveries.graph, tenant, keep_unexplained=True)


@pytest.fixture
def while_events_are_read(monkeypatch: pytest.MonkeyPatch) -> list[Iterator[object]]:
    """Of each iterator in this list one step is taken whenever a rebuild begins to read the stored events."""
    meanwhile: list[Iterator[object]] = []
    read = raw_events.read_in_version_order

    def reading(*args: object) -> Iterator[StoredEvent]:
        for number, event in enumerate(read(*args)):  # type: ignore[arg-type]
            if number == 1:
                for steps in meanwhile:
                    next(steps, None)
            yield event

    monkeypatch.setattr(raw_events, "read_in_version_order", reading)
    return meanwhile


def test_events_out_of_order_that_keep_coming_do_not_keep_a_rebuild_from_its_end(
    deliveries: Deliveries, while_events_are_read: list[Iterator[object]], caplog: pytest.LogCaptureFixture
) -> None:
    tables = [f"t{number}" for number in range(20)]
    arrived = [created(deliveries, minute, table) for table in tables for minute in (1, 9)]
    deliveries.deliver(arrived)
    late = renamed(deliveries, 5, tables[0])
    plain = (ran(10 + number, [path("a")], [path(f"b{number}")], job=f"j{number}") for number in count())

    def more() -> Iterator[None]:
        for table in tables[1:]:
            some = [next(plain), renamed(deliveries, 5, table)]
            arrived.extend(some)
            deliveries.committer.commit([deliveries.prepare(one) for one in some])
            yield

    assert deliveries.committer.commit([deliveries.prepare(late)]).rebuild
    arrived.append(late)
    while_events_are_read.append(more())
    with caplog.at_level(logging.INFO, "platform_defs.lineage.upkeep.tenant_rebuild"):
        rebuild(deliveries)
    assert "wait for the next rebuild" in caplog.text
    assert open_requests(deliveries), "what came meanwhile is not forgotten"
    lacks = raw_events.count_unapplied(deliveries.engine, before=now() + timedelta(hours=1))
    assert 0 < lacks < len(arrived) - 2 * len(tables)
    while_events_are_read.clear()
    deliveries.recover()
    assert not open_requests(deliveries)
    assert deliveries.lines() == expected(deliveries, arrived)
    assert recovery_failures.read_failures(deliveries.engine) is None


def test_paths_that_are_linked_while_a_graph_is_rebuilt_do_not_make_it_begin_again(
    deliveries: Deliveries, while_events_are_read: list[Iterator[object]]
) -> None:
    arrived = [ran(minute, [path("a")], [path("b", "s.b")], job=f"j{minute}") for minute in range(3)]
    deliveries.deliver(arrived)
    steps: list[int] = []

    def more() -> Iterator[None]:
        for number in count(10):
            linked = ran(number, [path("a")], [path(f"p{number}", f"s.p{number}")], job=f"j{number}")
            arrived.append(linked)
            deliveries.committer.commit([deliveries.prepare(linked)])
            steps.append(number)
            yield

    while_events_are_read.append(more())
    rebuild(deliveries)
    assert len(steps) == 3, "with the graph, to merge them, and to find those that came meanwhile"
    while_events_are_read.clear()
    deliveries.recover()
    assert deliveries.lines() == expected(deliveries, arrived)


def test_events_that_come_with_one_that_needs_a_rebuild_do_not_wait_for_it(deliveries: Deliveries) -> None:
    tables = [f"t{number}" for number in range(5)]
    arrived = [created(deliveries, minute, table) for table in tables for minute in (1, 9)]
    deliveries.deliver(arrived)
    late = renamed(deliveries, 5, tables[0])
    plain = [ran(10 + number, [path("a")], [path(f"b{number}")], job=f"j{number}") for number in range(4)]
    group = [deliveries.prepare(one) for one in (*plain[:2], late, *plain[2:])]
    result = deliveries.committer.commit(group)
    assert result.rebuild == {deliveries.tenant.id}
    assert result.waiting == {group[2].key}
    deliveries.committer.flush()
    assert deliveries.lines() == expected(deliveries, [*arrived, *plain])
    assert raw_events.count_unapplied(deliveries.engine, before=now() + timedelta(hours=1)) == 1
    # of many such events it is not tried which ones the graph could take
    more = [deliveries.prepare(renamed(deliveries, 5, table)) for table in tables]
    assert deliveries.committer.commit([group[2], *more]).waiting == {one.key for one in (group[2], *more)}
    deliveries.recover()
    everything = [*arrived, *plain, *(renamed(deliveries, 5, table) for table in tables)]
    assert deliveries.lines() == expected(deliveries, everything)
    assert not open_requests(deliveries)

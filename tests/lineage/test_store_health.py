"""Which stores are away, what is said of them, and who waits for their return."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import mysql.connector
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphAccessDenied, GraphUnavailable
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink import commit, own_writes, store_health
from platform_defs.lineage.sink.answers import WARMING_UP, Answer
from platform_defs.lineage.sink.apply import apply_events
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.store_health import DATABASE, GRAPH, StoreHealth
from platform_defs.store.engine import has_one_writer
from platform_defs.store.errors import StoreUnavailable
from tests.lineage_events import run_event
from tests.waiting import PATIENCE_S

LOST_GRAPH, LOST_DATABASE = GraphUnavailable("no answer"), StoreUnavailable("no answer")


class Store:
    """Answers a ping unless it is away."""

    def __init__(self) -> None:
        self.away = False
        self.error: Exception = ConnectionError()
        self.pings = 0

    def __call__(self) -> None:
        self.pings += 1
        if self.away:
            raise self.error


class Stores:
    def __init__(self) -> None:
        self.database, self.graph = Store(), Store()
        self.warm = True

    def health(self) -> StoreHealth:
        return StoreHealth({DATABASE: self.database, GRAPH: self.graph}, PATIENCE_S, lambda: self.warm)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    monkeypatch.setattr(store_health, "PAUSE_S", 0.001)
    monkeypatch.setattr(store_health, "PING_AGAIN_S", 0.001)
    monkeypatch.setattr(store_health, "LOOK_S", 0.001)
    monkeypatch.setattr(store_health, "HOLD_S", PATIENCE_S)
    return Stores()


@pytest.fixture
def every_write_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its beginning: with a short deadline instead, a ping would have no time to be answered."""
    monkeypatch.setattr(store_health, "SLOW_SHARE", 0.0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def wait(health: StoreHealth) -> bool:
    return await health.wait_for_return(time.monotonic() + PATIENCE_S)


def test_a_store_that_refuses_is_not_said_to_be_silent(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.database.away = stores.graph.away = True
        stores.database.error = DatabaseError("SELECT 1", None, mysql.connector.DatabaseError("locked", 3118))
        health.note_failure(stores.database.error)
        assert health.refusal.message == "the database refuses what it is asked; send again later"
        both = "the database refuses what it is asked and the graph does not answer; send again later"
        await eventually(lambda: health.refusal.message == both)
        stores.graph.error = GraphAccessDenied("wrong password")
        both = "the database and the graph refuse what they are asked; send again later"
        await eventually(lambda: health.refusal.message == both)
        stores.database.error = ConnectionError()
        both = "the graph refuses what it is asked and the database does not answer; send again later"
        await eventually(lambda: health.refusal.message == both)
        stores.database.away = stores.graph.away = False
        await eventually(lambda: not health.is_away)

    run(work())


def test_a_lost_store_is_away_until_both_answer_a_ping_and_is_named(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        assert not health.is_away
        stores.graph.away = stores.database.away = True
        health.note_failure(LOST_GRAPH)
        assert health.refusal == Answer(503, "unavailable", "the graph does not answer; send again later")
        both = "the database and the graph do not answer; send again later"
        await eventually(lambda: health.refusal.message == both)
        stores.graph.away = False
        await eventually(lambda: health.refusal.message == "the database does not answer; send again later")
        assert health.is_away
        stores.database.away = False
        await eventually(lambda: not health.is_away)

    run(work())


def test_nobody_but_the_pings_asks_a_store_that_is_away_however_many_requests_come(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.database.away = True
        health.note_failure(LOST_DATABASE)
        held = [asyncio.create_task(wait(health)) for _ in range(10)]
        await eventually(lambda: stores.database.pings > 3)
        assert not any(one.done() for one in held)
        stores.database.away = False
        assert all(await asyncio.gather(*held))

    run(work())


def test_a_request_does_not_wait_longer_than_a_moment(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_health, "HOLD_S", 0.01)

    async def work() -> None:
        health = stores.health()
        stores.database.away = True
        health.note_failure(LOST_DATABASE)
        assert not await wait(health)

    run(work())


def test_requests_beyond_a_number_do_not_wait(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_health, "MAX_HELD", 2)

    async def work() -> None:
        health = stores.health()
        stores.database.away = True
        health.note_failure(LOST_DATABASE)
        held = [asyncio.create_task(wait(health)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not await wait(health)
        stores.database.away = False
        assert await asyncio.gather(*held) == [True, True]

    run(work())


def test_a_graph_that_is_back_is_away_until_it_is_warm(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.warm = False
        assert health.is_away
        assert health.refusal == WARMING_UP
        waiting = asyncio.create_task(wait(health))
        stores.warm = True
        assert await waiting

    run(work())


def test_a_graph_that_was_lost_while_nobody_wrote_is_said_to_be_warming_up_only_when_it_answers(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.graph.away, stores.warm = True, False
        waiting = asyncio.create_task(wait(health))
        await eventually(lambda: health.refusal.message == "the graph does not answer; send again later")
        stores.graph.away = False
        await eventually(lambda: health.refusal == WARMING_UP)
        stores.warm = True
        assert await waiting

    run(work())


def test_a_graph_that_answers_once_more_while_it_is_being_stopped_is_not_said_to_be_warming_up(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.warm = False
        health.note_failure(LOST_GRAPH)
        await eventually(lambda: health.refusal == WARMING_UP)
        stores.graph.away = True
        await eventually(lambda: health.refusal.message == "the graph does not answer; send again later")
        stores.graph.away = False
        await eventually(lambda: health.refusal == WARMING_UP)
        stores.warm = True
        await eventually(lambda: not health.is_away)
        asked = stores.graph.pings
        await asyncio.sleep(0.01)
        assert stores.graph.pings <= asked + 1, "nobody asks a store that is there"

    run(work())


def test_a_write_that_ends_after_the_graph_was_lost_does_not_mean_that_it_is_back(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.graph.away, stores.warm = True, False
        health.note_failure(LOST_GRAPH)
        health.note_success()
        assert health.refusal.message == "the graph does not answer; send again later"
        stores.graph.away, stores.warm = False, True
        await eventually(lambda: not health.is_away)

    run(work())


def test_a_store_that_fails_although_it_answers_is_left_alone_for_a_moment(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk may be full."""
    monkeypatch.setattr(store_health, "PAUSE_S", PATIENCE_S)

    async def work() -> None:
        health = stores.health()
        health.note_failure(LOST_DATABASE)
        await asyncio.sleep(0.01)
        assert health.is_away
        health.note_success()
        assert not health.is_away

    run(work())


@pytest.mark.usefixtures("every_write_is_slow")
def test_while_a_write_hangs_on_a_silent_store_no_event_is_taken(stores: Stores) -> None:
    async def work() -> None:
        health = stores.health()
        stores.graph.away = True
        write: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        watching = asyncio.create_task(health.watch(write))
        await eventually(lambda: health.is_away)
        assert health.refusal.message == "the graph does not answer; send again later"
        write.set_result(7)
        assert await watching == 7
        assert not health.is_away

    run(work())


@pytest.mark.usefixtures("every_write_is_slow")
def test_a_database_that_makes_a_ping_wait_for_a_write_of_this_process_is_not_away(
    stores: Stores, migrated: dict[str, Engine]
) -> None:
    """A file of SQLite has one writer at a time: a wide event would make everybody else get 503 at once."""

    async def work() -> None:
        health = stores.health()
        stores.database.away = True
        with migrated["sqlite"].begin() as connection, own_writes.granted(connection):
            assert await health.is_event_too_slow(began=float("-inf"))
            # what is silent besides is away all the same
            stores.graph.away = True
            assert not await health.is_event_too_slow(began=float("-inf"))
        stores.graph.away = False
        assert not await health.is_event_too_slow(began=float("-inf"))
        stores.database.away = False
        assert await health.is_event_too_slow(began=float("-inf"))

    run(work())


def test_a_write_is_known_to_be_granted_where_a_ping_has_to_wait_for_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def look(*arguments: Any) -> Any:
        seen.append(own_writes.is_under_way())
        return apply_events(*arguments)

    add_tenant(engine, DEMO_TENANT)
    source = Principal("key", "spark", frozenset(), SourceType.COMPUTE, DEMO_TENANT)
    event = Intake(KnownTenants(engine)).prepare(source, run_event()).prepared
    monkeypatch.setattr(commit, "apply_events", look)
    committer = open_committer(engine, EmbeddedGraph.on(engine))
    committer.commit([event])
    committer.close()
    assert seen == [has_one_writer(engine)]
    assert not own_writes.is_under_way()


def test_a_ping_that_hangs_is_no_answer_and_no_other_one_is_sent(stores: Stores) -> None:
    release = threading.Event()
    pings = 0

    def hang() -> None:
        nonlocal pings
        pings += 1
        release.wait(PATIENCE_S)

    async def work() -> None:
        health = StoreHealth({DATABASE: hang, GRAPH: stores.graph}, 0.01)
        health.note_failure(LOST_DATABASE)
        await eventually(lambda: stores.graph.pings > 3)
        assert health.is_away
        assert pings == 1
        release.set()
        await eventually(lambda: not health.is_away)

    run(work())

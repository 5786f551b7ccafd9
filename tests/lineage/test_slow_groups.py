"""A group that takes too long: the slow event is found, set apart and paused, and the others are written."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from platform_defs.graph.errors import GraphTooSlow
from platform_defs.lineage.facts import Dropped, Fact, Ref, Renamed
from platform_defs.lineage.sink import store_health
from platform_defs.lineage.sink.answers import ACCEPTED, TOO_LATE, TOO_SLOW, Answer
from platform_defs.lineage.sink.commit import CommitResult
from platform_defs.lineage.sink.fair_queue import Entry
from platform_defs.lineage.sink.lanes import WIDE_FACTS, WIDE_GROUP_FACTS
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.suspects import split_slow_group
from tests.lineage.remembered_groups import LIMITS, Groups, open_sink, prepared, seen, submit
from tests.waiting import PATIENCE_S

MANY = replace(LIMITS, group_events=100)
SCHEMA = Ref("schema", ("lake", "hive", "s"))
TABLE = Ref("table", (*SCHEMA.name, "t"))
DROP_TABLE, DROP_SCHEMA = Dropped(TABLE), Dropped(SCHEMA)
RENAME_TABLE = Renamed(TABLE, Ref("table", (*SCHEMA.name, "new")))


class SlowFor(Groups):
    """Takes too long for every group with an event of this name."""

    def __init__(self, name: str, *, held: bool = False) -> None:
        super().__init__(held=held)
        self.name = name

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        super().commit(events)
        if self.name in self.groups[-1]:
            raise GraphTooSlow("took too long")
        return CommitResult()


@pytest.fixture(autouse=True)
def every_failure_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_health, "SLOW_SHARE", 0.0)
    monkeypatch.setattr(store_health, "SLOW_PAUSE_S", PATIENCE_S)


def split(*events: PreparedEvent) -> tuple[list[str], bool]:
    """The suspects of such a group, and whether there is a reason to suspect them."""

    async def main() -> tuple[list[str], bool]:
        loop = asyncio.get_running_loop()
        found = split_slow_group([Entry(event, loop.create_future()) for event in events])
        names = [entry.event.key.fingerprint for entry in found.suspects]
        others = [entry.event.key.fingerprint for entry in found.others]
        assert names
        assert others
        assert sorted(names + others) == sorted(event.key.fingerprint for event in events)
        return names, found.has_reason

    return asyncio.run(main())


def test_drops_and_renames_are_suspected_first_then_what_says_much_then_what_is_large() -> None:
    large, wide = prepared(1, "large", size=900), prepared(1, "wide", facts=900)
    narrow = [prepared(1, f"narrow{number}", facts=9, size=9) for number in range(9)]
    drop, drop_schema = prepared(1, "drop", says=(DROP_TABLE,)), prepared(1, "drop schema", says=(DROP_SCHEMA,))
    rename = prepared(1, "rename", says=(RENAME_TABLE,))
    assert split(*narrow, large, wide, drop, rename, drop_schema) == (["rename", "drop schema"], True)
    assert split(*narrow, large, wide, drop) == (["drop"], True)
    assert split(drop, replace(drop, key=narrow[0].key), drop_schema) == (["drop schema"], True)
    assert split(*narrow, large, wide) == (["wide"], False)
    assert split(*narrow, large) == (["large"], False)
    assert split(narrow[0], narrow[1]) == (["narrow0"], False)
    assert len(split(*narrow)[0]) == 5


def test_the_events_of_the_tenant_whose_transaction_was_slow_are_suspected_whatever_the_others_say() -> None:
    class SlowForTenant(SlowFor):
        """Takes too long for every transaction of tenant 1 with this event, and knows that it was this tenant's."""

        def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
            try:
                return super().commit(events)
            except GraphTooSlow as error:
                error.tenant = 1
                raise

    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = SlowForTenant("small"), SlowForTenant("small")
        sink = open_sink(first, second, limits=MANY)
        others = [prepared(2, "large", size=900), prepared(3, "drop", says=(DROP_TABLE,))]
        assert await submit(sink, prepared(1, "small"), *others) == [TOO_SLOW, ACCEPTED, ACCEPTED]
        sink.close()
        return first.groups, second.groups

    assert asyncio.run(main()) == ([["small", "large", "drop"], ["large", "drop"]], [["small"]])


@pytest.mark.parametrize("fact", [DROP_SCHEMA, Dropped(SCHEMA.parent or SCHEMA), RENAME_TABLE])
def test_a_drop_of_a_schema_or_catalog_and_a_renamed_table_are_in_the_lane_of_wide_events(fact: Fact) -> None:
    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = Groups(), Groups(held=True)
        sink = open_sink(first, second)
        small = submit(sink, prepared(1, "small", says=(fact,)))
        await seen(second, 1)
        assert await submit(sink, prepared(2, "b0"), prepared(2, "b1", says=(DROP_TABLE,))) == [ACCEPTED] * 2
        second.free.set()
        assert await small == [ACCEPTED]
        sink.close()
        return first.groups, second.groups

    assert asyncio.run(main()) == ([["b0", "b1"]], [["small"]])


def test_a_small_drop_that_is_slow_is_set_apart_at_once_and_its_tenant_with_it() -> None:
    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = SlowFor("drop"), SlowFor("drop")
        sink = open_sink(first, second, limits=MANY)
        others = [prepared(tenant, f"t{tenant}", size=20, facts=5) for tenant in (2, 3, 4)]
        events = [*others, prepared(1, "drop", says=(DROP_TABLE,)), prepared(1, "same tenant", size=20)]
        assert await submit(sink, *events) == [*[ACCEPTED] * 3, TOO_SLOW, ACCEPTED]
        # sent again, it is not even tried
        assert await submit(sink, events[3], prepared(5, "t5")) == [TOO_SLOW, ACCEPTED]
        sink.close()
        return first.groups, second.groups

    first, second = asyncio.run(main())
    assert first[1:] == [["t2", "t3", "t4"], ["t5"]]
    assert sorted(second) == [["drop"], ["same tenant"]]


def test_what_is_suspected_of_an_event_holds_although_its_request_is_answered() -> None:
    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = SlowFor("drop", held=True), SlowFor("drop")
        sink = open_sink(first, second, limits=MANY)
        drop, other = prepared(1, "drop", says=(DROP_TABLE,)), prepared(2, "b0", size=20)
        while not first.groups:  # a busy machine may answer before the group is begun
            late = asyncio.get_running_loop().time() + 0.2
            assert await sink.submit([drop, other], until=late) == [TOO_LATE] * 2
        first.free.set()
        assert await submit(sink, other, drop) == [ACCEPTED, TOO_SLOW]
        sink.close()
        return first.groups, second.groups

    assert asyncio.run(main()) == ([["drop", "b0"], ["b0"]], [["drop"]])


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("facts", [1, WIDE_FACTS + 1])
def test_an_event_that_is_slow_for_no_visible_reason_is_found_and_the_others_are_written(
    lanes: int, facts: int
) -> None:
    async def main() -> list[list[list[str]]]:
        stores = [SlowFor("e3") for _ in range(lanes)]
        limits = replace(MANY, group_facts=100 * WIDE_FACTS)
        sink = open_sink(*stores, limits=limits)
        events = [prepared(number % 4, f"e{number}", facts=facts) for number in range(16)]

        async def send(event: PreparedEvent) -> Answer:
            (answer,) = await submit(sink, event)
            return answer

        answers = await asyncio.gather(*map(send, events))
        assert [answer for answer in answers if not answer.accepted] == [answers[3]] == [TOO_SLOW]
        sink.close()
        return [store.groups for store in stores]

    tries = [group for groups in asyncio.run(main()) for group in groups if "e3" in group]
    # wide events do not come in groups of so many
    most = WIDE_GROUP_FACTS // facts if facts > WIDE_FACTS else 16
    assert sorted(map(len, tries), reverse=True) == [size for size in (16, 8, 4, 2, 1) if size <= most]

"""Groups are fair: tenants take turns, a group is bounded by what its events say, wide events hold up nobody else."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import weight_of
from platform_defs.lineage.sink import lanes
from platform_defs.lineage.sink import sink as sink_module
from platform_defs.lineage.sink.answers import ACCEPTED, TOO_LATE
from platform_defs.lineage.sink.commit import CommitResult
from platform_defs.lineage.sink.fair_queue import Entry
from platform_defs.lineage.sink.lanes import MAX_PAUSE_S, WIDE_FACTS, WIDE_GROUP_FACTS, Lanes
from platform_defs.lineage.sink.pace import Pace
from platform_defs.lineage.sink.pending import PreparedEvent
from tests.lineage.remembered_groups import LIMITS, Groups, open_sink, prepared, seen, submit
from tests.lineage_events import run_event
from tests.waiting import PATIENCE_S

OTHERS = ((2, "b"), (3, "c"))


def test_tenants_take_turns() -> None:
    async def main() -> list[list[str]]:
        stores = Groups()
        sink = open_sink(stores)
        many = submit(sink, *(prepared(1, f"a{number}") for number in range(6)))
        few = submit(sink, prepared(2, "b0"), prepared(3, "c0"))
        assert {*(await many), *(await few)} == {ACCEPTED}
        sink.close()
        return stores.groups

    assert asyncio.run(main()) == [["a0", "b0", "c0", "a1"], ["a2", "a3", "a4", "a5"]]


def test_a_group_is_bounded_by_what_its_events_say() -> None:
    async def main() -> list[list[str]]:
        stores = Groups()
        sink = open_sink(stores, limits=replace(LIMITS, group_facts=WIDE_FACTS))
        said = {"a": WIDE_FACTS // 2, "b": WIDE_FACTS // 2, "c": 1, "d": WIDE_FACTS - 1, "e": 1}
        await submit(sink, *(prepared(1, name, facts=facts) for name, facts in said.items()))
        sink.close()
        return stores.groups

    assert asyncio.run(main()) == [["a", "b"], ["c", "d"], ["e"]]


def test_a_group_of_wide_events_is_bounded_more_closely_in_a_lane_of_its_own_too() -> None:
    async def main() -> list[list[str]]:
        second = Groups()
        sink = open_sink(Groups(), second)
        said = {"a": WIDE_GROUP_FACTS - 1, "b": 1, "c": WIDE_FACTS + 1, "d": 4 * WIDE_GROUP_FACTS, "e": 1}
        await submit(sink, *(prepared(1, name, facts=facts) for name, facts in said.items()))
        sink.close()
        return second.groups

    assert asyncio.run(main()) == [["a", "b"], ["c"], ["d"], ["e"]]


def test_a_tenant_whose_event_does_not_fit_is_passed_over_and_comes_first_in_the_next_group() -> None:
    """Until then one wide event after the other let the other tenants have one event each between them."""

    async def main(**kwargs: int) -> list[list[str]]:
        stores = Groups(held=True)
        sink = open_sink(stores)
        # the tenant that does not fit, and two others whose requests wait together with it
        started = submit(sink, prepared(9, "first"))
        await seen(stores, 1)
        large = submit(sink, *(prepared(1, f"A{number}", **kwargs) for number in range(3)))
        others = [
            submit(sink, *(prepared(tenant, f"{name}{number}") for number in range(3))) for tenant, name in OTHERS
        ]
        await asyncio.sleep(0)  # all are in the queue before the first group ends
        stores.free.set()
        for answers in (started, large, *others):
            assert set(await answers) == {ACCEPTED}
        sink.close()
        return stores.groups[1:]

    expected = [["A0", "b0", "c0", "b1"], ["A1", "c1", "b2", "c2"], ["A2"]]
    assert asyncio.run(main(size=LIMITS.group_bytes - 3)) == expected
    assert asyncio.run(main(facts=WIDE_FACTS)) == [["A0", "b0", "c0", "A1"], ["b1", "c1", "A2", "b2"], ["c2"]]


def test_an_event_whose_request_was_answered_takes_no_turn() -> None:
    async def main() -> list[list[str]]:
        stores = Groups(held=True)
        sink = open_sink(stores)
        first = submit(sink, prepared(9, "first"))
        await seen(stores, 1)
        late = asyncio.get_running_loop().time()
        assert await sink.submit([prepared(1, f"late{n}", size=600) for n in range(3)], until=late) == [TOO_LATE] * 3
        others = submit(sink, prepared(1, "a", size=600), prepared(2, "b", size=300))
        await asyncio.sleep(0)  # both are in the queue before the first group ends
        stores.free.set()
        assert await others == [ACCEPTED, ACCEPTED]
        assert await first == [ACCEPTED]
        sink.close()
        return stores.groups[1:]

    assert asyncio.run(main()) == [["a", "b"]]


def test_a_tenant_stays_in_the_second_lane_until_its_write_has_ended_although_its_request_is_answered() -> None:
    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = Groups(), Groups(held=True)
        sink = open_sink(first, second)
        while not second.groups:  # a busy machine may answer before the group is begun
            late = asyncio.get_running_loop().time() + 0.2
            assert await sink.submit([prepared(1, "wide", facts=WIDE_FACTS + 1)], until=late) == [TOO_LATE]
        narrow = submit(sink, prepared(1, "narrow"))
        assert await submit(sink, prepared(2, "b0")) == [ACCEPTED]
        assert not narrow.done()
        second.free.set()
        assert await narrow == [ACCEPTED]
        assert await submit(sink, prepared(1, "later")) == [ACCEPTED]
        sink.close()
        return first.groups, second.groups

    assert asyncio.run(main()) == ([["b0"], ["later"]], [["wide"], ["narrow"]])


def test_a_tenant_with_wide_events_is_written_beside_the_others_and_nobody_waits_for_it() -> None:
    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = Groups(held=True), Groups(held=True)
        sink = open_sink(first, second)
        other = submit(sink, prepared(2, "b0"))
        await seen(first, 1)
        waiting = submit(sink, prepared(1, "a0"))
        await asyncio.sleep(0)  # a0 is in the queue before its tenant sends a wide event
        wide = submit(sink, prepared(1, "wide", facts=WIDE_FACTS + 1))
        await seen(second, 1)
        same_tenant = submit(sink, prepared(1, "a1"))
        another = submit(sink, prepared(2, "b1"))
        first.free.set()
        assert await other == await another == [ACCEPTED]
        assert [task.done() for task in (wide, same_tenant, waiting)] == [False, False, False]
        second.free.set()
        assert await wide == await same_tenant == await waiting == [ACCEPTED]
        # the tenant's lane is the first one again
        assert await submit(sink, prepared(1, "a2")) == [ACCEPTED]
        sink.close()
        return first.groups, second.groups

    first, second = asyncio.run(main())
    assert first == [["b0"], ["b1"], ["a2"]]
    assert second[0] == ["wide"]
    assert sorted(name for group in second[1:] for name in group) == ["a0", "a1"]


def test_an_event_that_copies_a_table_of_170_columns_does_not_wait_for_a_huge_one() -> None:
    fields = [{"name": f"c{number}", "type": "int"} for number in range(170)]
    source = {"namespace": "postgres://h", "name": "d.s.a"}
    lineage = {field["name"]: {"inputFields": [source | {"field": field["name"]}]} for field in fields}
    event = run_event(sql=None)
    event["inputs"] = [source | {"facets": {"schema": {"fields": fields}}}]
    facets = {"schema": {"fields": fields}, "columnLineage": {"fields": lineage}}
    event["outputs"] = [source | {"name": "d.s.b", "facets": facets}]
    facts = sum(map(weight_of, facts_of(parse_event(event), SourceType.COMPUTE).facts))
    assert facts > 3 * len(fields)

    async def main() -> list[list[str]]:
        first, second = Groups(), Groups(held=True)
        sink = open_sink(first, second)
        huge = submit(sink, prepared(1, "huge", facts=12 * WIDE_FACTS))
        await seen(second, 1)
        assert await submit(sink, prepared(2, "copy", facts=facts)) == [ACCEPTED]
        second.free.set()
        assert await huge == [ACCEPTED]
        sink.close()
        return first.groups

    assert asyncio.run(main()) == [["copy"]]


def test_wide_events_give_way_only_while_events_of_other_tenants_wait() -> None:
    async def main() -> None:
        first, second, pace = Groups(held=True), Groups(held=True), Pace()
        sink = open_sink(first, second, pace=pace)
        wide = submit(sink, prepared(1, "wide", facts=WIDE_FACTS + 1), prepared(1, "narrow"))
        await seen(second, 1)
        assert not pace.others_wait()
        other = submit(sink, prepared(2, "b0"))
        await seen(first, 1)
        assert pace.others_wait()
        first.free.set()
        assert await other == [ACCEPTED]
        assert not pace.others_wait()
        second.free.set()
        assert await wide == [ACCEPTED, ACCEPTED]
        sink.close()

    asyncio.run(main())


def test_wide_events_and_others_of_one_tenant_share_groups_and_leave_the_first_lane_free() -> None:
    async def main() -> tuple[list[list[str]], list[list[str]]]:
        first, second = Groups(), Groups(held=True)
        sink = open_sink(first, second)
        wide = submit(sink, prepared(1, "wide", facts=WIDE_FACTS + 1), prepared(1, "narrow"))
        await seen(second, 1)
        # nobody else was there when the wide event came, and still the next one does not wait for it
        assert await submit(sink, prepared(2, "b0")) == [ACCEPTED]
        second.free.set()
        assert await wide == [ACCEPTED, ACCEPTED]
        sink.close()
        return first.groups, second.groups

    assert asyncio.run(main()) == ([["b0"]], [["wide", "narrow"]])


def test_with_one_lane_others_wait_for_one_wide_event_or_a_small_group_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_SHARE_S", 0.0)

    async def main() -> list[list[str]]:
        stores = Groups(held=True)
        sink = open_sink(stores)
        first = submit(sink, prepared(9, "first"))
        await seen(stores, 1)
        facts = (5 * WIDE_FACTS, WIDE_FACTS + 1, WIDE_GROUP_FACTS - WIDE_FACTS - 1, WIDE_FACTS + 1)
        assert min(facts) > WIDE_FACTS
        wide = submit(sink, *(prepared(1, f"wide{number}", facts=some) for number, some in enumerate(facts)))
        others = submit(sink, prepared(1, "a0"), *(prepared(2, f"b{number}") for number in range(8)))
        await asyncio.sleep(0)  # all are in the queue before the first group ends
        stores.free.set()
        for answers in (first, wide, others):
            assert set(await answers) == {ACCEPTED}
        sink.close()
        return stores.groups[1:]

    assert asyncio.run(main()) == [
        ["wide0"],
        ["a0", "b0", "b1", "b2"],
        ["wide1", "wide2"],
        ["b3", "b4", "b5", "b6"],
        ["wide3"],
        ["b7"],
    ]


def test_the_lane_of_wide_events_rests_while_others_wait() -> None:
    async def main() -> None:
        lanes = Lanes([Groups(), Groups()])

        def enter(event: PreparedEvent) -> Entry:
            entry = Entry(event, asyncio.get_running_loop().create_future())
            lanes.enter(entry)
            return entry

        first, second = lanes.all
        enter(prepared(1, "wide", facts=WIDE_FACTS + 1))
        assert lanes.pause_after(second, second.wide, 0.1) == 0
        other = enter(prepared(2, "b0"))
        assert lanes.pause_after(second, second.wide, 0.1) == 0.1
        assert lanes.pause_after(second, second.wide, 60.0) == MAX_PAUSE_S
        assert lanes.pause_after(first, first.queue, 0.1) == 0
        other.answer.set_result(ACCEPTED)
        await asyncio.sleep(0)  # the loop tells that the entry is answered
        assert lanes.pause_after(second, second.wide, 0.1) == 0
        lanes.close()

    asyncio.run(main())


def test_in_the_only_lane_the_others_are_written_for_as_long_as_a_group_of_wide_events_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MAX_SHARE_S", PATIENCE_S)
    clock = [0.0]
    monkeypatch.setattr(sink_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Timed(Groups):
        """A wide group takes ten seconds, any other one four, by the sink's clock."""

        def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
            result = super().commit(events)
            clock[0] += 10 if "wide" in self.groups[-1][0] else 4
            return result

    async def main() -> list[list[str]]:
        stores = Timed(held=True)
        sink = open_sink(stores)
        first = submit(sink, prepared(9, "first"))
        await seen(stores, 1)
        wide = submit(sink, *(prepared(1, f"wide{number}", facts=WIDE_GROUP_FACTS) for number in range(3)))
        others = submit(sink, *(prepared(2, f"b{number}") for number in range(32)))
        await asyncio.sleep(0)  # all are in the queue before the first group ends
        stores.free.set()
        for answers in (first, wide, others):
            assert set(await answers) == {ACCEPTED}
        sink.close()
        return stores.groups[1:]

    # three groups of four seconds take the turn of the ten, and one more is the usual turn of the queue
    names = [group[0] for group in asyncio.run(main())]
    assert names == ["wide0", "b0", "b4", "b8", "b12", "wide1", "b16", "b20", "b24", "b28", "wide2"]

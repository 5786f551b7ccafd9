"""Which events of a group that took too long are suspected, and how they are tried again until the slow one is alone.

An event is known by its key. Most requests are answered before it is clear which event was slow, and their clients send
it again: what was learned must not be lost with the request.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from platform_defs.lineage.facts import moves_assets, reaches_far
from platform_defs.lineage.sink.fair_queue import Entry
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.rows.raw_events import EventKey
from platform_defs.lineage.sink.store_health import MAX_SLOW_EVENTS, SlowEvents


@dataclass(frozen=True, slots=True)
class Split:
    """A group that took too long, in two parts. has_reason: the suspects do what may take long; else it is a guess."""

    suspects: list[Entry]
    others: list[Entry]
    has_reason: bool


def says_any(event: PreparedEvent, kind: Callable[..., bool]) -> bool:
    return any(map(kind, event.event_facts.facts))


def split_slow_group(group: Sequence[Entry], tenant: int | None = None) -> Split:
    """Splits a group of two or more events; neither part is empty.

    tenant: whose transaction took too long, if that is known. Then the events of this tenant are suspected. If the
    group has no others, drops and renames are suspected, because an event of a few bytes may drop a thousand tables. If
    it has none, or nothing else, those are suspected that say the most, or the largest: the few that make up half.
    """
    suspects = [entry for entry in group if entry.event.tenant.id == tenant]
    if 0 < len(suspects) < len(group):
        return Split(suspects, _without(group, suspects), has_reason=True)
    for kind in (reaches_far, moves_assets):
        suspects = [entry for entry in group if says_any(entry.event, kind)]
        if 0 < len(suspects) < len(group):
            return Split(suspects, _without(group, suspects), has_reason=True)
    by_facts = _few_with_half(group, lambda event: 1 + event.facts)
    by_size = _few_with_half(group, lambda event: event.size)
    suspects = min(by_facts, by_size, key=len)
    return Split(suspects, _without(group, suspects), has_reason=False)


def _few_with_half(group: Sequence[Entry], weight: Callable[[PreparedEvent], int]) -> list[Entry]:
    total = sum(weight(entry.event) for entry in group)
    few: list[Entry] = []
    for entry in sorted(group, key=lambda entry: weight(entry.event), reverse=True):
        if 2 * sum(weight(one.event) for one in few) >= total:
            break
        few.append(entry)
    return few


def _without(group: Iterable[Entry], some: Sequence[Entry]) -> list[Entry]:
    left_out = set(map(id, some))
    return [entry for entry in group if id(entry) not in left_out]


class Suspects:
    """Events that may have held up their group: in how large groups each may be tried, and which are paused."""

    def __init__(self) -> None:
        # paused events, and suspects that go alone
        self._slow = SlowEvents()
        self._most: dict[EventKey, int] = {}

    def suspect(self, keys: Iterable[EventKey], most: int) -> None:
        """From now on these events are tried in groups of at most `most` events, all of them suspects."""
        for key in keys:
            if most == 1:
                self._slow.suspect(key)
            else:
                self._most[key] = most
                if len(self._most) > MAX_SLOW_EVENTS:
                    del self._most[next(iter(self._most))]

    def clear(self, keys: Iterable[EventKey]) -> None:
        """These events were written in time."""
        if self._most or self._slow:
            for key in keys:
                self._most.pop(key, None)
                self._slow.forget(key)

    def pause(self, key: EventKey) -> None:
        self._slow.pause(key)

    def is_paused(self, key: EventKey) -> bool:
        return self._slow.is_paused(key)

    def most_together(self, key: EventKey) -> int | None:
        """How large a group with this event may be; None if nothing is suspected of it."""
        return 1 if self._slow.must_go_alone(key) else self._most.get(key)

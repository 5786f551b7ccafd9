"""Events in groups that one transaction of the graph can write in time: for the recovery, and for the end of a rebuild.

A graph may be slower than that. Then a group is tried in parts, so that what takes too long is found soon.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from platform_defs.lineage.facts import Fact, weight_of

T = TypeVar("T")

# A group has at most so many facts, unless one event alone has more.
GROUP_FACTS = 10_000
# So many transactions may end because they take too long, which is ten seconds each. Finding the one event that is too
# wide among the 500 that are read at once takes two or three of them, or ten if others have more facts.
MAX_ENDED = 12


def weight_of_all(facts: Iterable[Fact]) -> int:
    return sum(map(weight_of, facts))


def groups_in_time(events: Iterable[T], weight: Callable[[T], int]) -> Iterator[list[T]]:
    """The events in groups that one transaction of the graph can write in time, as the sink forms them."""
    group: list[T] = []
    facts = 0
    for event in events:
        more = weight(event)
        if group and facts + more > GROUP_FACTS:
            yield group
            group, facts = [], 0
        group.append(event)
        facts += more
    if group:
        yield group


def widest_apart(events: Sequence[T], weight: Callable[[T], int]) -> list[Sequence[T]]:
    """Parts of a tenant's events that took too long together: the widest one first, and the others in halves."""
    widest = max(range(len(events)), key=lambda index: weight(events[index]))
    others = [*events[:widest], *events[widest + 1 :]]
    return [events[widest : widest + 1], *halves(others)]


def halves(events: Sequence[T]) -> list[Sequence[T]]:
    """Without those that are empty."""
    middle = len(events) // 2
    return [part for part in (events[:middle], events[middle:]) if part]

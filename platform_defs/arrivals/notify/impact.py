"""The impact closure: which KPIs change when these do, through computed KPIs that build on them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence


def affected(kpi_ids: Iterable[str], depends_on: Mapping[str, Sequence[str]]) -> list[str]:
    """The KPIs themselves, sorted, then every computed KPI that builds on one of them however indirectly, sorted.

    `depends_on` is what each computed KPI names; a cycle in it is walked once.
    """
    built_on: defaultdict[str, list[str]] = defaultdict(list)
    for computed, names in depends_on.items():
        for name in names:
            built_on[name].append(computed)
    extended = set(kpi_ids)
    reached = set(extended)
    waiting = list(extended)
    while waiting:
        for computed in built_on[waiting.pop()]:
            if computed not in reached:
                reached.add(computed)
                waiting.append(computed)
    return sorted(extended) + sorted(reached - extended)

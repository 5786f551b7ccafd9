"""Affected KPIs: when some KPIs change, every computed KPI that builds on one of them changes too."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence


def affected_kpis(kpi_ids: Iterable[str], depends_on: Mapping[str, Sequence[str]]) -> list[str]:
    """The changed KPIs, sorted, then every computed KPI that builds on one of them, directly or not, sorted.

    `depends_on` lists the KPIs that each computed KPI names. Cycles in it do no harm: no KPI is visited twice.
    """
    built_on: defaultdict[str, list[str]] = defaultdict(list)
    for computed, names in depends_on.items():
        for name in names:
            built_on[name].append(computed)
    changed = set(kpi_ids)
    reached = set(changed)
    unvisited = list(changed)
    while unvisited:
        for computed in built_on[unvisited.pop()]:
            if computed not in reached:
                reached.add(computed)
                unvisited.append(computed)
    return sorted(changed) + sorted(reached - changed)

"""Which assets the shown tables are and what each depends on, without cycles, which Dagster refuses."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from platform_defs.lineage.tables.keys import Table, asset_key_of, groups_of
from platform_defs.lineage.tables.shown import ShownTable

Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableAsset:
    """An asset of the UI. Several tables are one asset if they are the same for arrivals, or have the same name.

    upstream: what it depends on. in_cycle: what it depends on too, but in a cycle (or on itself), so that Dagster
    cannot show it.
    """

    key: Key
    tables: tuple[ShownTable, ...]
    group: str
    upstream: tuple[Key, ...]
    in_cycle: tuple[Key, ...]


def assets_of(tables: Iterable[ShownTable], arrivals_namespace: str) -> dict[Key, TableAsset]:
    """The assets by their key. Whatever names and dependencies the tables have, the result has no cycle."""
    keys: dict[tuple[int, str], Key] = {}
    by_key: dict[Key, list[ShownTable]] = defaultdict(list)
    for table in tables:
        key = tuple(asset_key_of(Table(table.tenant_id, table.namespace, table.name), arrivals_namespace))
        keys[table.tenant_id, table.table_id] = key
        by_key[key].append(table)
    upstream: dict[Key, set[Key]] = {
        key: {keys[table.tenant_id, id] for table in same for id in table.upstream if (table.tenant_id, id) in keys}
        for key, same in by_key.items()
    }
    component = components(upstream)
    groups = groups_of(_place(table) for same in by_key.values() for table in same)
    found: dict[Key, TableAsset] = {}
    for key, same in sorted(by_key.items()):
        above = sorted(upstream[key])
        found[key] = TableAsset(
            key=key,
            tables=tuple(same),
            group=groups[_place(same[0])],
            upstream=tuple(other for other in above if component[other] != component[key]),
            in_cycle=tuple(other for other in above if component[other] == component[key]),
        )
    return found


def _place(table: ShownTable) -> tuple[int, str, str]:
    return table.tenant_id, table.tenant_code, table.namespace


def components(upstream: Mapping[Key, set[Key]]) -> dict[Key, int]:
    """A number per key. Two keys have the same number if each can be reached from the other.

    Without recursion, because a chain of tables may be longer than Python's stack.
    """
    downstream: dict[Key, list[Key]] = defaultdict(list)
    for key, above in upstream.items():
        for other in above:
            downstream[other].append(key)
    order: list[Key] = []
    visited: set[Key] = set()
    for start in upstream:
        stack = [(start, iter(upstream[start]))] if start not in visited else []
        visited.add(start)
        while stack:
            key, rest = stack[-1]
            following = next((other for other in rest if other not in visited), None)
            if following is None:
                order.append(key)
                stack.pop()
            else:
                visited.add(following)
                stack.append((following, iter(upstream[following])))
    component: dict[Key, int] = {}
    for number, start in enumerate(reversed(order)):
        waiting = [start] if start not in component else []
        while waiting:
            key = waiting.pop()
            if key not in component:
                component[key] = number
                waiting += [other for other in downstream[key] if other not in component]
    return component

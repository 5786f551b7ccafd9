"""Finds the events that used a name which is linked to a table for the first time, so that they are applied anew.

A rebuild of the tenant's graph would do the same, at the cost of all its events. Here only those are read that named
it: the graph remembers them while they are few.
"""

from collections.abc import Collection

from sqlalchemy import Connection

from platform_defs.graph.port import Graph
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.codec import read_node
from platform_defs.lineage.merge.relinking import Relink, is_plain, names_any
from platform_defs.lineage.merge.state import NEVER
from platform_defs.lineage.sink import raw_events
from platform_defs.lineage.sink.apply import stamp_facts
from platform_defs.lineage.sink.symlinks import linked_names, note_use, read_meanings
from platform_defs.lineage.version import Version


def find_relink(connection: Connection, graph: Graph, tenant_id: int, names: Collection[Ref]) -> Relink | None:
    """None if it needs a rebuild. names: those that were never linked before, and of which the graph has tables."""
    versions: set[Version] = set()
    for node in graph.for_tenant(tenant_id).nodes(sorted(name.id for name in names)).values():
        named_in = read_node(node, NEVER).named_in
        if not named_in:
            return None
        versions |= named_in
    # more events than are remembered may have named what is above the tables, and all of them be these
    if len(versions) > bounds.MAX_NAMED or not all(map(_is_of_files, names)):
        return None
    events = raw_events.read_versions(connection, tenant_id, versions)
    # without its row, which retention deletes, it is not known what an event said
    if {one.event_facts.version for one in events} != versions:
        return None
    meanings = read_meanings(connection, tenant_id, {name for one in events for name in one.names.plain})
    others = {name: meaning for name, meaning in meanings.items() if name not in names}
    before = [one.facts_with(linked_names(others, one.names.plain, one.event_facts.version)) for one in events]
    after = [one.facts_with(linked_names(meanings, one.names.plain, one.event_facts.version)) for one in events]
    relink = Relink(frozenset(names), stamp_facts(before), stamp_facts(after))
    # another name may be linked to such a name, which so stays a table
    if not is_plain(relink.before) or not is_plain(relink.after) or names_any(relink.after, relink.names):
        return None
    note_use(connection, tenant_id, {name: meanings[name] for name in names})
    return relink


def _is_of_files(name: Ref) -> bool:
    """Whether it is a path, as which only compute engines name tables: no catalog drops what is above it."""
    namespace, catalog, schema, _ = name.name
    return namespace == catalog and ":" in namespace and schema.endswith("/")

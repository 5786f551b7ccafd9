"""Finds the events that used a name before it was linked to a table for the first time, to apply them anew.

A rebuild of the tenant's graph would have the same result, at the cost of reading all its events. Here only the events
that used the name are read, which the graph remembers while they are few.
"""

from collections.abc import Collection

from sqlalchemy import Connection

from platform_defs.graph.port import Graph
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.codec import read_node
from platform_defs.lineage.merge.relinking import Relink, is_plain, names_any
from platform_defs.lineage.merge.state import NEVER
from platform_defs.lineage.sink.apply import stamp_facts
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.meanings import linked_names
from platform_defs.lineage.sink.rows.symlinks import note_use, read_meanings
from platform_defs.lineage.version import Version


def find_relink(connection: Connection, graph: Graph, tenant_id: int, names: Collection[Ref]) -> Relink | None:
    """The events to apply anew, or None if only a rebuild will do.

    names: names that were never linked before and under which the graph has tables.
    """
    versions: set[Version] = set()
    for node in graph.for_tenant(tenant_id).nodes(sorted(name.id for name in names)).values():
        named_in = read_node(node, NEVER).named_in
        if not named_in:
            return None
        versions |= named_in
    # schemas and catalogs forget which events named them if there are too many, even if all of them are among these
    if len(versions) > bounds.MAX_NAMED or not all(map(_is_of_files, names)):
        return None
    events = raw_events.read_versions(connection, tenant_id, versions)
    # retention may have deleted rows; what those events said is not known any more
    if {one.event_facts.version for one in events} != versions:
        return None
    meanings = read_meanings(connection, tenant_id, {name for one in events for name in one.names.plain})
    others = {name: meaning for name, meaning in meanings.items() if name not in names}
    before = [one.facts_with(linked_names(others, one.names.plain, one.event_facts.version)) for one in events]
    after = [one.facts_with(linked_names(meanings, one.names.plain, one.event_facts.version)) for one in events]
    relink = Relink(frozenset(names), stamp_facts(before), stamp_facts(after))
    # if another name is linked to one of these names, that one stays a table
    if not is_plain(relink.before) or not is_plain(relink.after) or names_any(relink.after, relink.names):
        return None
    note_use(connection, tenant_id, {name: meanings[name] for name in names})
    return relink


def _is_of_files(name: Ref) -> bool:
    """Whether it is a path. Only compute engines name tables so, and no catalog drops what is above a path."""
    namespace, catalog, schema, _ = name.name
    return namespace == catalog and ":" in namespace and schema.endswith("/")

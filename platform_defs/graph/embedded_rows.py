"""Reads of the embedded graph's tables for one tenant, with and without locks.

Nodes are known outside by their id, a text; edges in the tables refer to them by number, which is shorter.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, and_, func, or_, select, tuple_

from platform_defs.graph.model import Edge, EdgeKey, Node
from platform_defs.graph.vocabulary import KNOWLEDGE, TENANT
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.graph import graph_edge, graph_node

IDS_PER_STATEMENT = 1000
NODES_PER_PAGE = 1000

_NODE_COLUMNS = (graph_node.c.node_id, graph_node.c.kind, graph_node.c.vector_label, graph_node.c.props)


class NodeRow(NamedTuple):
    """A stored node. Its properties stay text, so that they are compared as text: in Python True equals 1 and 1.0."""

    kind: str
    vector: str | None
    props: str


class EdgePlace(NamedTuple):
    """An edge's key as the table has it, with the numbers of its nodes."""

    from_node: int
    type: str
    to_node: int


class _Ends(defaultdict[int, list[int]]):
    """Numbers of nodes, each with those of the nodes at the other ends of its edges."""

    def __init__(self) -> None:
        super().__init__(list)

    def ids(self) -> set[int]:
        return {number for others in self.values() for number in others}


class TenantRows:
    """The rows of one tenant; every statement carries the tenant."""

    def __init__(self, tenant: int) -> None:
        self._tenant = tenant

    def nodes(self, connection: Connection, ids: Sequence[str]) -> dict[str, Node]:
        return {
            row.node_id: node_from(row)
            for some in chunks(ids, IDS_PER_STATEMENT)
            for row in connection.execute(self._select(*_NODE_COLUMNS).where(graph_node.c.node_id.in_(some)))
        }

    def lock_nodes(self, connection: Connection, ids: Sequence[str]) -> dict[str, NodeRow]:
        """Locks the nodes that exist until the transaction ends, and returns them."""
        return {
            row.node_id: NodeRow(row.kind, row.vector_label, row.props)
            for some in chunks(ids, IDS_PER_STATEMENT)
            for row in connection.execute(
                self._select(*_NODE_COLUMNS)
                .where(graph_node.c.node_id.in_(some))
                .order_by(graph_node.c.node_id)
                .with_for_update()
            )
        }

    def page_of_nodes(self, connection: Connection, after: str) -> Sequence[Row[Any]]:
        query = self._select(graph_node.c.id, *_NODE_COLUMNS).where(graph_node.c.node_id > after)
        return connection.execute(query.order_by(graph_node.c.node_id).limit(NODES_PER_PAGE)).all()

    def some_numbers(self, connection: Connection, limit: int) -> Sequence[int]:
        """Numbers of any nodes of the tenant, for deleting all of them in portions."""
        return connection.scalars(self._select(graph_node.c.id).limit(limit)).all()

    def numbers(self, connection: Connection, ids: Collection[str], *, lock: bool = False) -> dict[str, int]:
        """The numbers of the nodes that exist; `lock` keeps others from deleting these nodes."""
        found: dict[str, int] = {}
        for some in chunks(sorted(ids), IDS_PER_STATEMENT):
            query = self._select(graph_node.c.node_id, graph_node.c.id).where(graph_node.c.node_id.in_(some))
            if lock:
                query = query.order_by(graph_node.c.node_id).with_for_update(read=True)
            found |= {row.node_id: row.id for row in connection.execute(query)}
        return found

    def upstream(self, connection: Connection, tables: Sequence[int]) -> set[tuple[str, str]]:
        """The ids of these tables, each with those of the tables that its rows come from.

        Step by step along an index: SQLite would join the steps by reading all edges of the tenant for each of them.
        """
        writers = self._ends(connection, "OUTPUT_TO", graph_edge.c.to_node, tables)
        readers = self._ends(connection, "INPUT_OF", graph_edge.c.to_node, writers.ids())
        columns = self._ends(connection, "HAS_COLUMN", graph_edge.c.from_node, tables)
        # an input of the table as a whole is an edge from the table itself
        sources = self._ends(connection, "DERIVES_FROM", graph_edge.c.from_node, {*columns.ids(), *tables})
        owners = self._ends(connection, "HAS_COLUMN", graph_edge.c.to_node, sources.ids())
        found: set[tuple[int, int]] = set()
        for table in tables:
            above = {upper for job in writers[table] for upper in readers[job]}
            derived = {source for place in (table, *columns[table]) for source in sources[place]}
            above |= {owner for source in derived for owner in owners[source]}
            found |= {(table, upper) for upper in above}
        names = self._names(connection, {number for pair in found for number in pair})
        return {(names[table], names[upper]) for table, upper in found}

    def _ends(self, connection: Connection, type: str, near: Column[int], nodes: Collection[int]) -> "_Ends":
        """For each of these nodes the other ends of its edges of this type; `near` is the end that the nodes are."""
        far = graph_edge.c.from_node if near is graph_edge.c.to_node else graph_edge.c.to_node
        found = _Ends()
        for some in chunks(sorted(nodes), IDS_PER_STATEMENT):
            condition = and_(graph_edge.c.tenant_id == self._tenant, graph_edge.c.type == type, near.in_(some))
            for near_number, far_number in connection.execute(select(near, far).where(condition)):
                found[near_number].append(far_number)
        return found

    def _names(self, connection: Connection, numbers: Collection[int]) -> dict[int, str]:
        return {
            row.id: row.node_id
            for some in chunks(sorted(numbers), IDS_PER_STATEMENT)
            for row in connection.execute(
                self._select(graph_node.c.id, graph_node.c.node_id).where(graph_node.c.id.in_(some))
            )
        }

    def places(self, connection: Connection, keys: Sequence[EdgeKey]) -> list[EdgePlace]:
        """The keys with the numbers of their nodes. Keys with a missing node are left out; edges are not looked up."""
        numbers = self.numbers(connection, {id for key in keys for id in (key.from_id, key.to_id)})
        return [
            EdgePlace(numbers[key.from_id], key.type, numbers[key.to_id])
            for key in keys
            if key.from_id in numbers and key.to_id in numbers
        ]

    def edges(
        self,
        connection: Connection,
        condition: ColumnElement[bool],
        types: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[Edge]:
        begin, end, table = graph_node.alias("begin"), graph_node.alias("end"), graph_edge.c
        query = (
            select(table.type, begin.c.node_id.label("from_id"), end.c.node_id.label("to_id"), table.props)
            .join(begin, and_(begin.c.tenant_id == table.tenant_id, begin.c.id == table.from_node))
            .join(end, and_(end.c.tenant_id == table.tenant_id, end.c.id == table.to_node))
            .where(table.tenant_id == self._tenant, condition)
        )
        if types is not None:
            query = query.where(table.type.in_(types))
        if limit is not None:
            query = query.order_by(begin.c.node_id, table.type, end.c.node_id).limit(limit)
        return [Edge(row.type, row.from_id, row.to_id, json.loads(row.props)) for row in connection.execute(query)]

    def ending_with(self, connection: Connection, kind: str, endings: Sequence[str], limit: int) -> list[Node]:
        name = _property(connection, "qualifiedName")
        # also without folding, because lower() of SQLite knows ASCII alone
        wanted = [
            condition
            for ending in endings
            for value, text in ((name, ending), (func.lower(name), ending.lower()))
            for condition in (
                value == text,
                *(value.endswith(f"{mark}{text}", autoescape=True) for mark in "./"),
            )
        ]
        return self._found(connection, kind, or_(*wanted), limit)

    def containing(self, connection: Connection, kind: str, text: str, own: str, limit: int) -> list[Node]:
        wanted = [_contains(_property(connection, "qualifiedName"), text)]
        if own:
            wanted.append(_contains(_property(connection, "name"), own))
        return self._found(connection, kind, and_(*wanted), limit)

    def _found(self, connection: Connection, kind: str, condition: ColumnElement[bool], limit: int) -> list[Node]:
        """One statement over all nodes of the kind: names are no columns, since only people ask for them."""
        order = (_property(connection, "qualifiedName"), _property(connection, "namespace"), graph_node.c.node_id)
        query = self._select(*_NODE_COLUMNS).where(graph_node.c.kind == kind, condition).order_by(*order).limit(limit)
        return [node_from(row) for row in connection.execute(query)]

    def lock_edges(self, connection: Connection, places: Sequence[EdgePlace]) -> dict[EdgePlace, str]:
        """Locks the edges that exist until the transaction ends, and returns their properties as text."""
        table = graph_edge.c
        return {
            EdgePlace(row.from_node, row.type, row.to_node): row.props
            for condition in self.at_places(places)
            for row in connection.execute(
                select(table.from_node, table.type, table.to_node, table.props)
                .where(condition)
                .order_by(table.from_node, table.to_node)
                .with_for_update()
            )
        }

    def at_places(self, places: Sequence[EdgePlace]) -> Iterator[ColumnElement[bool]]:
        """Conditions that together pick the edges at these places, one per type and chunk.

        Each condition fixes one type and lists pairs of nodes: a list of triples takes MariaDB six times as long. The
        first nodes are listed once more, because SQLite uses no index for pairs and would read all edges of the tenant.
        """
        by_type: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for place in sorted(places):
            by_type[place.type].append((place.from_node, place.to_node))
        table = graph_edge.c
        for type, pairs in sorted(by_type.items()):
            for some in chunks(pairs, IDS_PER_STATEMENT):
                yield and_(
                    table.tenant_id == self._tenant,
                    table.type == type,
                    table.from_node.in_({begin for begin, _ in some}),
                    tuple_(table.from_node, table.to_node).in_(some),
                )

    def _select(self, *columns: Any) -> Select[Any]:
        return select(*columns).where(graph_node.c.tenant_id == self._tenant)


def _property(connection: Connection, name: str) -> ColumnElement[str]:
    value = func.json_extract(graph_node.c.props, f"$.{name}")
    # SQLite gives the text itself, MySQL and MariaDB its JSON
    return value if connection.dialect.name == "sqlite" else func.json_unquote(value)


def _contains(value: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """In any case of letters; also without folding, as above."""
    return or_(value.contains(text, autoescape=True), func.lower(value).contains(text.lower(), autoescape=True))


def node_from(row: Row[Any]) -> Node:
    labels = {row.kind} if row.kind == TENANT else {row.kind, KNOWLEDGE}
    if row.vector_label:
        labels.add(row.vector_label)
    return Node(row.node_id, frozenset(labels), json.loads(row.props))

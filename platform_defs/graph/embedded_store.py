"""One tenant's graph in tables: the methods of the port, and how each kind of step is written."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, and_, delete, update
from sqlalchemy.exc import IntegrityError

from platform_defs.canonical import canonical_json
from platform_defs.graph.batch_store import BatchStore, OpenTransaction, Transactions
from platform_defs.graph.embedded_rows import IDS_PER_STATEMENT, EdgePlace, NodeRow, TenantRows, node_from
from platform_defs.graph.errors import GraphConflict
from platform_defs.graph.model import Edge, EdgeKey, Node, edge_order, name_order
from platform_defs.graph.port import GraphTransaction
from platform_defs.graph.steps import NodeChange, merge_props
from platform_defs.graph.vocabulary import KNOWLEDGE, TENANT
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.graph import graph_edge, graph_node
from platform_defs.store.upsert import upsert

T = TypeVar("T")

NODES_PER_DELETE = 5000

_NODE_KEY = ("tenant_id", "node_id")
_EDGE_KEY = ("tenant_id", "from_node", "type", "to_node")


class EmbeddedStore(BatchStore[Connection]):
    """One tenant's graph in tables."""

    def __init__(self, tenant: int, transactions: Transactions[Connection]) -> None:
        super().__init__(tenant, transactions)
        self._rows = TenantRows(self._tenant)

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        def locked(connection: Connection) -> T:
            self._lock_tenant(connection)
            return work(EmbeddedStore(self._tenant, OpenTransaction(connection)))

        return self._transactions.write(locked)

    def clear(self) -> None:
        while self._transactions.write(self._clear_some):
            pass

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        return self._transactions.read(lambda connection: self._rows.nodes(connection, sorted(set(ids))))

    def upstream_tables(self, ids: Sequence[str], *, limit: int) -> list[tuple[str, str]]:
        def work(connection: Connection) -> list[tuple[str, str]]:
            found: set[tuple[str, str]] = set()
            for some in chunks(sorted(self._rows.numbers(connection, set(ids)).values()), IDS_PER_STATEMENT):
                found |= self._rows.upstream(connection, some)
            return sorted(found)[:limit]

        return self._transactions.read(work)

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        def work(connection: Connection) -> list[Edge]:
            found: dict[EdgeKey, Edge] = {}
            for some in chunks(self._rows.numbers(connection, set(ids)).values(), IDS_PER_STATEMENT):
                for end in (graph_edge.c.from_node, graph_edge.c.to_node):
                    found |= {edge.key: edge for edge in self._rows.edges(connection, end.in_(some), types)}
            return sorted(found.values(), key=edge_order)

        return self._transactions.read(work)

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        def work(connection: Connection) -> dict[EdgeKey, Edge]:
            places = self._rows.places(connection, sorted(set(keys)))
            return {
                edge.key: edge
                for condition in self._rows.at_places(places)
                for edge in self._rows.edges(connection, condition)
            }

        return self._transactions.read(work)

    def follow(self, ids: Sequence[str], types: Sequence[str], *, forward: bool, limit: int) -> list[Edge]:
        def work(connection: Connection) -> list[Edge]:
            found: list[Edge] = []
            end = graph_edge.c.from_node if forward else graph_edge.c.to_node
            for some in chunks(sorted(self._rows.numbers(connection, set(ids)).values()), IDS_PER_STATEMENT):
                found += self._rows.edges(connection, end.in_(some), types, limit)
            return sorted(found, key=edge_order)[:limit]

        return self._transactions.read(work)

    def find_by_ending(self, kind: str, endings: Sequence[str], *, limit: int) -> list[Node]:
        found = self._transactions.read(
            lambda connection: self._rows.ending_with(connection, kind, endings, limit) if endings else []
        )
        return sorted(found, key=name_order)

    def find_by_text(self, kind: str, text: str, *, own: str = "", limit: int) -> list[Node]:
        found = self._transactions.read(lambda connection: self._rows.containing(connection, kind, text, own, limit))
        return sorted(found, key=name_order)

    def stream(self) -> Iterator[Node | Edge]:
        for page in self._pages():
            yield from map(node_from, page)
        for page in self._pages():
            begins = graph_edge.c.from_node.in_([row.id for row in page])
            edges = self._transactions.read(
                lambda connection, begins=begins: self._rows.edges(connection, begins)  # type: ignore[misc]
            )
            yield from sorted(edges, key=edge_order)

    def _pages(self) -> Iterator[Sequence[Any]]:
        """The rows of all nodes, sorted by id."""
        after = ""
        while page := self._transactions.read(
            lambda connection, after=after: self._rows.page_of_nodes(connection, after)  # type: ignore[misc]
        ):
            yield page
            after = page[-1].node_id

    def _upsert_nodes(self, connection: Connection, changes: Mapping[str, NodeChange]) -> None:
        stored = self._rows.lock_nodes(connection, sorted(changes))
        created = {id: changes[id] for id in sorted(changes.keys() - stored.keys())}
        if created:
            rows = [self._node_values(id, _change_node(None, change)) for id, change in created.items()]
            upsert(connection, graph_node, rows, key=_NODE_KEY, update="nothing")
            # read again under a lock: another transaction may have created some of them in between
            stored |= self._rows.lock_nodes(connection, list(created))
        self._write_changes(connection, stored, changes)

    def _patch_nodes(self, connection: Connection, changes: Mapping[str, NodeChange]) -> list[str]:
        stored = self._rows.lock_nodes(connection, sorted(changes))
        self._write_changes(connection, stored, {id: changes[id] for id in sorted(stored)})
        return [id for id in changes if id not in stored]

    def _write_changes(
        self, connection: Connection, stored: Mapping[str, NodeRow], changes: Mapping[str, NodeChange]
    ) -> None:
        """Writes only the rows that a change makes different from what is stored."""
        rows = []
        for id in sorted(changes):
            changed = _change_node(stored[id], changes[id])
            if changed != stored[id]:
                rows.append(self._node_values(id, changed))
        if rows:
            upsert(connection, graph_node, rows, key=_NODE_KEY)
        if (change := changes.get(str(self._tenant))) and "code" in change.props:
            self._claim_code(connection, change.props["code"])

    def _claim_code(self, connection: Connection, code: Any) -> None:
        """By an UPDATE of its own: an upsert that meets the code of another tenant would change that tenant's row."""
        mine = and_(graph_node.c.tenant_id == self._tenant, graph_node.c.node_id == str(self._tenant))
        try:
            connection.execute(update(graph_node).where(mine).values(tenant_code=code))
        except IntegrityError as error:
            raise GraphConflict(f"the tenant code {code!r} belongs to another tenant") from error

    def _upsert_edges(self, connection: Connection, changes: Mapping[EdgeKey, Mapping[str, Any]]) -> list[EdgeKey]:
        # a shared lock on both ends: neither can be deleted before the edge is written
        ends = {id for key in changes for id in (key.from_id, key.to_id)}
        numbers = self._rows.numbers(connection, ends, lock=True)
        possible = {
            EdgePlace(numbers[key.from_id], key.type, numbers[key.to_id]): change
            for key, change in changes.items()
            if key.from_id in numbers and key.to_id in numbers
        }
        # an edge without properties leaves the stored ones as they are, so nothing has to be read
        bare = sorted(place for place, change in possible.items() if not change)
        self._insert_edges(connection, [(place, "{}") for place in bare])
        self._merge_edges(connection, {place: change for place, change in possible.items() if change})
        return [key for key in changes if key.from_id not in numbers or key.to_id not in numbers]

    def _merge_edges(self, connection: Connection, changes: Mapping[EdgePlace, Mapping[str, Any]]) -> None:
        stored = self._rows.lock_edges(connection, sorted(changes))
        if created := sorted(changes.keys() - stored.keys()):
            self._insert_edges(connection, [(place, _merge_text("{}", changes[place])) for place in created])
            stored |= self._rows.lock_edges(connection, created)
        rows = [
            self._edge_values(place, merged)
            for place in sorted(changes)
            if (merged := _merge_text(stored[place], changes[place])) != stored[place]
        ]
        if rows:
            upsert(connection, graph_edge, rows, key=_EDGE_KEY)

    def _insert_edges(self, connection: Connection, edges: Sequence[tuple[EdgePlace, str]]) -> None:
        if edges:
            rows = [self._edge_values(*edge) for edge in edges]
            upsert(connection, graph_edge, rows, key=_EDGE_KEY, update="nothing")

    def _delete_edges(self, connection: Connection, keys: Sequence[EdgeKey]) -> None:
        for condition in self._rows.at_places(self._rows.places(connection, keys)):
            connection.execute(delete(graph_edge).where(condition))

    def _delete_nodes(self, connection: Connection, ids: Sequence[str]) -> None:
        self._delete_numbers(connection, sorted(self._rows.numbers(connection, ids).values()))

    def _clear_some(self, connection: Connection) -> int:
        numbers = self._rows.some_numbers(connection, NODES_PER_DELETE)
        self._delete_numbers(connection, numbers)
        return len(numbers)

    def _delete_numbers(self, connection: Connection, numbers: Sequence[int]) -> None:
        """The foreign keys delete the edges of these nodes too."""
        for some in chunks(numbers, IDS_PER_STATEMENT):
            connection.execute(
                delete(graph_node).where(graph_node.c.tenant_id == self._tenant, graph_node.c.id.in_(some))
            )

    def _lock_tenant(self, connection: Connection) -> None:
        """On SQLite a transaction that writes is alone anyway."""
        own = str(self._tenant)
        if not self._rows.lock_nodes(connection, [own]):
            rows = [self._node_values(own, NodeRow(TENANT, None, "{}"))]
            upsert(connection, graph_node, rows, key=_NODE_KEY, update="nothing")
            self._rows.lock_nodes(connection, [own])

    def _node_values(self, id: str, row: NodeRow) -> dict[str, Any]:
        return {
            "tenant_id": self._tenant,
            "node_id": id,
            "kind": row.kind,
            "vector_label": row.vector,
            "props": row.props,
        }

    def _edge_values(self, place: EdgePlace, props: str) -> dict[str, Any]:
        from_node, type, to_node = place
        return {"tenant_id": self._tenant, "from_node": from_node, "type": type, "to_node": to_node, "props": props}


def _change_node(stored: NodeRow | None, change: NodeChange) -> NodeRow:
    before = stored or NodeRow(KNOWLEDGE, None, "{}")
    return NodeRow(change.kind or before.kind, change.vector or before.vector, _merge_text(before.props, change.props))


def _merge_text(stored: str, change: Mapping[str, Any]) -> str:
    """The stored properties, which are JSON text, after the change."""
    return canonical_json(merge_props(json.loads(stored), change))

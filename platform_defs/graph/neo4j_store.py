"""One tenant's graph on Neo4j: the methods of the port, and how each kind of step is written in UNWIND batches."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from neo4j import ManagedTransaction

from platform_defs.graph import cypher
from platform_defs.graph.batch_store import BatchStore, OpenTransaction, Transactions
from platform_defs.graph.checks import check_edge_type, check_kind
from platform_defs.graph.model import Edge, EdgeKey, Node, edge_order, name_order
from platform_defs.graph.port import GraphTransaction
from platform_defs.graph.steps import NodeChange
from platform_defs.graph.vocabulary import (
    EDGE_TYPES,
    HIERARCHY_TYPES,
    KNOWLEDGE,
    KNOWLEDGE_KINDS,
    RESERVED_PROPERTIES,
    TENANT,
    vector_dimension,
)
from platform_defs.store.chunks import chunks

T = TypeVar("T")

ROWS_PER_STATEMENT = 1000
NODES_PER_PAGE = 1000
NODES_PER_DELETE = 5000
_KINDS = sorted(KNOWLEDGE_KINDS)
_ALL_TYPES = "|".join(sorted(EDGE_TYPES))
_LINK_TYPES = "|".join(sorted(EDGE_TYPES - HIERARCHY_TYPES))


class Neo4jStore(BatchStore[ManagedTransaction]):
    """One tenant's graph on Neo4j."""

    def __init__(self, tenant: int, transactions: Transactions[ManagedTransaction]) -> None:
        super().__init__(tenant, transactions)
        self._tenant_node = str(tenant)
        # the Tenant node as the statement that locked it found it; None where it is not locked or was written since
        self._locked_node: Node | None = None

    def clear(self) -> None:
        for label in (KNOWLEDGE, TENANT):
            while self._transactions.write(lambda tx, label=label: self._clear_some(tx, label)):  # type: ignore[misc]
                pass

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        return self._transactions.read(lambda tx: self._nodes(tx, ids))

    def upstream_tables(self, ids: Sequence[str], *, limit: int) -> list[tuple[str, str]]:
        def work(tx: ManagedTransaction) -> list[tuple[str, str]]:
            found = {
                (str(record["table"]), str(record["upstream"]))
                for template in (cypher.UPSTREAM_BY_JOB, cypher.UPSTREAM_BY_COLUMN, cypher.UPSTREAM_AS_A_WHOLE)
                for record in self._run_over_ids(tx, template, sorted(set(ids)), {"limit": limit})
            }
            return sorted(found)[:limit]

        return self._transactions.read(work)

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        templates = (cypher.EDGES_OUT, cypher.EDGES_IN)
        return self._transactions.read(lambda tx: self._edges(tx, templates, ids, types))

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        return self._transactions.read(lambda tx: self._edges_by_key(tx, keys))

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        def locked(tx: ManagedTransaction) -> T:
            (found,) = self._execute(tx, cypher.LOCK_TENANT, {"label": TENANT})
            store = Neo4jStore(self._tenant, OpenTransaction(tx))
            store._locked_node = _node_from(found)
            return work(store)

        return self._transactions.write(locked)

    def follow(self, ids: Sequence[str], types: Sequence[str], *, forward: bool, limit: int) -> list[Edge]:
        template = cypher.FOLLOW_OUT if forward else cypher.FOLLOW_IN
        wanted = "|".join(map(check_edge_type, types))

        def work(tx: ManagedTransaction) -> list[Edge]:
            records = [
                record
                for label, some in self._by_label(ids)
                for record in self._run_over_ids(tx, template, some, {"limit": limit}, label=label, types=wanted)
            ]
            return sorted(map(_edge_from, records), key=edge_order)[:limit]

        return self._transactions.read(work)

    def find_by_ending(self, kind: str, endings: Sequence[str], *, limit: int) -> list[Node]:
        lower = [ending.lower() for ending in endings]
        return self._find(cypher.NODES_ENDING_WITH, kind, endings=lower, limit=limit)

    def find_by_text(self, kind: str, text: str, *, own: str = "", limit: int) -> list[Node]:
        return self._find(cypher.NODES_CONTAINING, kind, text=text, own=own, limit=limit)

    def _find(self, template: str, kind: str, **parameters: Any) -> list[Node]:
        names = {"kind": check_kind(kind)}
        records = self._transactions.read(lambda tx: self._execute(tx, template, names, **parameters))
        return sorted(map(_node_from, records), key=name_order)

    def stream(self) -> Iterator[Node | Edge]:
        for ids in self._pages():
            found = self.nodes(ids)
            yield from (found[id] for id in ids if id in found)
        for ids in self._pages():
            yield from self._transactions.read(lambda tx, ids=ids: self._edges(tx, (cypher.EDGES_OUT,), ids, None))  # type: ignore[misc]

    def _upsert_nodes(self, tx: ManagedTransaction, changes: Mapping[str, NodeChange]) -> None:
        self._locked_node = None
        for label, ids in self._by_label(changes):
            rows = [row | {"kind": changes[str(row["id"])].kind or label} for row in self._node_rows(changes, ids)]
            for some in chunks(rows, ROWS_PER_STATEMENT):
                self._execute(tx, cypher.UPSERT_NODES, {"label": label}, rows=some, kinds=_KINDS)
        self._set_vectors(tx, changes)

    def _patch_nodes(self, tx: ManagedTransaction, changes: Mapping[str, NodeChange]) -> list[str]:
        self._locked_node = None
        found: set[str] = set()
        for label, ids in self._by_label(changes):
            rows = self._node_rows(changes, ids)
            found.update(str(record["id"]) for record in self._run_over_rows(tx, cypher.PATCH_NODES, rows, label=label))
        self._set_vectors(tx, changes)
        return [id for id in changes if id not in found]

    def _set_vectors(self, tx: ManagedTransaction, changes: Mapping[str, NodeChange]) -> None:
        by_vector: dict[str, list[str]] = defaultdict(list)
        for id, change in changes.items():
            if change.vector:
                by_vector[change.vector].append(id)
        for vector, ids in sorted(by_vector.items()):
            for record in self._execute(tx, cypher.STALE_VECTOR_LABELS, {}, ids=ids, keep=vector):
                if vector_dimension(record["label"]):
                    self._execute(tx, cypher.REMOVE_LABEL, {"vector": record["label"]}, ids=record["ids"])
            self._execute(tx, cypher.ADD_LABEL, {"vector": vector}, ids=ids)

    def _upsert_edges(self, tx: ManagedTransaction, changes: Mapping[EdgeKey, Mapping[str, Any]]) -> list[EdgeKey]:
        keys = list(changes)
        found: set[int] = set()
        for names, places in self._by_edge_form(keys):
            rows = [self._edge_row(keys[at]) | {"at": at, "props": changes[keys[at]]} for at in places]
            found.update(record["at"] for record in self._run_over_rows(tx, cypher.UPSERT_EDGES, rows, **names))
        return [key for at, key in enumerate(keys) if at not in found]

    def _delete_edges(self, tx: ManagedTransaction, keys: Sequence[EdgeKey]) -> None:
        for names, places in self._by_edge_form(keys):
            self._run_over_rows(tx, cypher.DELETE_EDGES, [self._edge_row(keys[at]) for at in places], **names)

    def _delete_nodes(self, tx: ManagedTransaction, ids: Sequence[str]) -> None:
        self._locked_node = None
        for label, some in self._by_label(ids):
            self._run_over_ids(tx, cypher.DELETE_NODES, some, label=label)

    def _clear_some(self, tx: ManagedTransaction, label: str) -> int:
        (record,) = self._execute(tx, cypher.CLEAR, {"label": label}, limit=NODES_PER_DELETE)
        return int(record["deleted"])

    def _nodes(self, tx: ManagedTransaction, ids: Sequence[str]) -> dict[str, Node]:
        found = {}
        if self._locked_node is not None and self._tenant_node in ids:
            found[self._tenant_node] = self._locked_node
            ids = [id for id in ids if id != self._tenant_node]
        for label, some in self._by_label(ids):
            for record in self._run_over_ids(tx, cypher.NODES, some, label=label):
                node = _node_from(record)
                found[node.id] = node
        return found

    def _edges(
        self, tx: ManagedTransaction, templates: Iterable[str], ids: Sequence[str], types: Sequence[str] | None
    ) -> list[Edge]:
        found: dict[EdgeKey, Edge] = {}
        for template in templates:
            for label, some in self._by_label(ids):
                for record in self._run_over_ids(tx, template, some, {"types": types}, label=label):
                    edge = _edge_from(record)
                    found[edge.key] = edge
        return sorted(found.values(), key=edge_order)

    def _edges_by_key(self, tx: ManagedTransaction, keys: Sequence[EdgeKey]) -> dict[EdgeKey, Edge]:
        by_labels: dict[tuple[str, str], dict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
        for key in keys:
            labels = self._label(key.from_id), self._label(key.to_id)
            by_labels[labels][key.from_id, key.to_id].add(check_edge_type(key.type))
        found: dict[EdgeKey, Edge] = {}
        for (from_label, to_label), pairs in sorted(by_labels.items()):
            types = _types_text(frozenset().union(*pairs.values()))
            rows = [
                self._edge_row(EdgeKey("", *pair)) | {"types": sorted(wanted)} for pair, wanted in sorted(pairs.items())
            ]
            names = {"from_label": from_label, "to_label": to_label, "types": types}
            records = self._run_over_rows(tx, cypher.EDGES_BY_KEY, rows, **names)
            found |= {edge.key: edge for edge in map(_edge_from, records)}
        return found

    def _pages(self) -> Iterator[list[str]]:
        """Pages of all node ids in order. The Tenant node lacks the label Knowledge and is put in at its place."""
        after, pending = "", [self._tenant_node]
        while True:
            page = self._transactions.read(lambda tx, after=after: self._ids_after(tx, after))  # type: ignore[misc]
            last = len(page) < NODES_PER_PAGE
            if pending and (last or page[-1] > self._tenant_node):
                page = sorted(page + pending)
                pending = []
            if page:
                yield page
                after = page[-1]
            if last:
                return

    def _ids_after(self, tx: ManagedTransaction, after: str) -> list[str]:
        return [record["id"] for record in self._execute(tx, cypher.IDS_AFTER, {}, after=after, limit=NODES_PER_PAGE)]

    def _node_rows(self, changes: Mapping[str, NodeChange], ids: Iterable[str]) -> list[dict[str, Any]]:
        # sorted: two transactions that lock the same nodes in the same order do not deadlock
        return [{"id": self._stored_id(id), "props": changes[id].props} for id in sorted(ids)]

    def _edge_row(self, key: EdgeKey) -> dict[str, Any]:
        return {"from": self._stored_id(key.from_id), "to": self._stored_id(key.to_id)}

    def _by_label(self, ids: Collection[str]) -> list[tuple[str, list[str]]]:
        assets = sorted({id for id in ids if id != self._tenant_node})
        own = [self._tenant_node] if self._tenant_node in ids else []
        return [(label, some) for label, some in ((KNOWLEDGE, assets), (TENANT, own)) if some]

    def _by_edge_form(self, keys: Sequence[EdgeKey]) -> list[tuple[dict[str, str], list[int]]]:
        """Positions of the keys, grouped by edge type and labels, which stand in the text of a statement."""
        forms: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for at in sorted(range(len(keys)), key=lambda at: keys[at]):
            key = keys[at]
            forms[key.type, self._label(key.from_id), self._label(key.to_id)].append(at)
        return [
            ({"type": type, "from_label": from_label, "to_label": to_label}, places)
            for (type, from_label, to_label), places in sorted(forms.items())
        ]

    def _label(self, id: str) -> str:
        return TENANT if id == self._tenant_node else KNOWLEDGE

    def _stored_id(self, id: str) -> str | int:
        """The id as Neo4j has it: the seed keeps the id of a Tenant node as a number."""
        return self._tenant if id == self._tenant_node else id

    def _run_over_rows(
        self, tx: ManagedTransaction, template: str, rows: Sequence[Mapping[str, Any]], **names: str
    ) -> list[Mapping[str, Any]]:
        return [
            record
            for some in chunks(rows, ROWS_PER_STATEMENT)
            for record in self._execute(tx, template, names, rows=some)
        ]

    def _run_over_ids(
        self,
        tx: ManagedTransaction,
        template: str,
        ids: Sequence[str],
        parameters: Mapping[str, Any] | None = None,
        **names: str,
    ) -> list[Mapping[str, Any]]:
        return [
            record
            for some in chunks([self._stored_id(id) for id in ids], ROWS_PER_STATEMENT)
            for record in self._execute(tx, template, names, ids=some, **(parameters or {}))
        ]

    def _execute(
        self, tx: ManagedTransaction, template: str, names: Mapping[str, str], **parameters: Any
    ) -> list[Mapping[str, Any]]:
        """The one place that sends a statement on tenant data: the tenant is always among its parameters."""
        statement = template.format(**names)
        records = list(tx.run(statement, parameters | {"tenant": self._tenant}))
        # most statements collect their rows in one record, because the driver is slow per record
        return [row for record in records for row in record.get("found", (record,))]


def _types_text(types: frozenset[str]) -> str:
    """Types that a statement names at least to find these: always one of the same two texts, which Neo4j plans once."""
    return _ALL_TYPES if types & HIERARCHY_TYPES else _LINK_TYPES


def _edge_from(record: Mapping[str, Any]) -> Edge:
    return Edge(record["type"], str(record["from"]), str(record["to"]), record["props"])


def _node_from(record: Mapping[str, Any]) -> Node:
    props = {name: value for name, value in record["props"].items() if name not in RESERVED_PROPERTIES}
    return Node(str(record["id"]), frozenset(record["labels"]), props)

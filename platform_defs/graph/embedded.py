"""The graph in tables of the platform's own database: set-based, and able to join the caller's transaction."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, and_, delete, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from platform_defs.canonical import canonical_json
from platform_defs.graph.batch_store import BatchStore
from platform_defs.graph.errors import GraphConflict
from platform_defs.graph.model import Applied, Edge, EdgeKey, Node
from platform_defs.graph.port import GraphTransaction
from platform_defs.graph.steps import NodeChange, Step, merge_props
from platform_defs.graph.vocabulary import HIERARCHY, KNOWLEDGE, TENANT, vector_label
from platform_defs.store import engine as store
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.graph import graph_edge, graph_node, graph_vector_index
from platform_defs.store.upsert import upsert

T = TypeVar("T")

IDS_PER_STATEMENT = 1000
NODES_PER_PAGE = 1000
NODES_PER_DELETE = 5000

_NODE_KEY = ("tenant_id", "node_id")
_EDGE_KEY = ("tenant_id", "from_node", "type", "to_node")
_NODE_COLUMNS = (graph_node.c.node_id, graph_node.c.kind, graph_node.c.vector_label, graph_node.c.props)


class NodeState(NamedTuple):
    """What a row says of a node. Properties are compared as text: in Python True equals 1 and 1.0."""

    kind: str
    vector: str | None
    props: str


Place = tuple[int, str, int]  # of an edge: number of its begin, type, number of its end


class Runner(Protocol):
    """Whose transaction the work runs in."""

    def write(self, work: Callable[[Connection], T]) -> T: ...

    def read(self, work: Callable[[Connection], T]) -> T: ...


class OwnTransactions:
    """A transaction for each call, repeated after deadlocks and lost connections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def write(self, work: Callable[[Connection], T]) -> T:
        return store.transact(self._engine, work)

    def read(self, work: Callable[[Connection], T]) -> T:
        return store.read(self._engine, work)


class CallersTransaction:
    """The caller commits, rolls back and repeats."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection)

    def read(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection)


class EmbeddedGraph:
    """The graph beside the rest; the engine belongs to the caller and outlives it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @classmethod
    def on(cls, engine: Engine) -> "EmbeddedGraph":
        return cls(OwnTransactions(engine))

    @classmethod
    def in_transaction(cls, connection: Connection) -> "EmbeddedGraph":
        return cls(CallersTransaction(connection))

    def for_tenant(self, tenant: int) -> "EmbeddedStore":
        return EmbeddedStore(tenant, self._runner)

    def ping(self) -> None:
        self._runner.read(lambda connection: connection.execute(select(graph_node.c.id).limit(1)).first())

    def ensure_schema(self) -> None:
        """Nothing to do: the tables come with the migrations."""

    def ensure_vector_index(self, dimension: int, similarity: str) -> str:
        """Records the label; there is no index, since only Neo4j answers searches by vector."""
        label = vector_label(dimension, similarity)
        self._runner.write(
            lambda connection: upsert(
                connection, graph_vector_index, [{"label": label}], key=("label",), update="nothing"
            )
        )
        return label

    def close(self) -> None:
        """Nothing to do: the engine is the caller's."""


class EmbeddedStore(BatchStore[Connection]):
    """One tenant's graph in tables."""

    def __init__(self, tenant: int, runner: Runner) -> None:
        super().__init__(tenant)
        self._runner = runner

    def clear(self) -> None:
        while self._runner.write(self._clear_some):
            pass

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        wanted = sorted(set(ids))
        return self._runner.read(
            lambda connection: {
                row.node_id: _node(row)
                for some in chunks(wanted, IDS_PER_STATEMENT)
                for row in connection.execute(self._select(*_NODE_COLUMNS).where(graph_node.c.node_id.in_(some)))
            }
        )

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        wanted = sorted(set(ids))

        def work(connection: Connection) -> list[Edge]:
            found: dict[EdgeKey, Edge] = {}
            for some in chunks(list(self._numbers(connection, wanted).values()), IDS_PER_STATEMENT):
                for end in (graph_edge.c.from_node, graph_edge.c.to_node):
                    found |= {edge.key: edge for edge in self._edges(connection, end.in_(some), types)}
            return _sorted(found.values())

        return self._runner.read(work)

    def links(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        wanted = sorted(set(keys))

        def work(connection: Connection) -> dict[EdgeKey, Edge]:
            places = self._places(connection, wanted)
            return {
                edge.key: edge for condition in self._at(places) for edge in self._edges(connection, condition, None)
            }

        return self._runner.read(work)

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        def locked(connection: Connection) -> T:
            self._lock_tenant(connection)
            return work(EmbeddedStore(self._tenant, CallersTransaction(connection)))

        return self._runner.write(locked)

    def stream(self) -> Iterator[Node | Edge]:
        after = ""
        while page := self._runner.read(lambda connection, after=after: self._page(connection, after)):  # type: ignore[misc]
            yield from map(_node, page)
            after = page[-1].node_id
        after = ""
        while page := self._runner.read(lambda connection, after=after: self._page(connection, after)):  # type: ignore[misc]
            numbers = [row.id for row in page]
            yield from _sorted(
                self._runner.read(
                    lambda connection, numbers=numbers: self._edges(  # type: ignore[misc]
                        connection, graph_edge.c.from_node.in_(numbers), None
                    )
                )
            )
            after = page[-1].node_id

    def _run(self, steps: Sequence[Step]) -> Applied:
        return self._runner.write(lambda connection: self._carry_out(connection, steps))

    def _upsert_nodes(self, connection: Connection, changes: Mapping[str, NodeChange]) -> None:
        stored = self._locked_nodes(connection, sorted(changes))
        created = {id: changes[id] for id in sorted(changes.keys() - stored.keys())}
        if created:
            rows = [self._node_row(id, _changed(None, change)) for id, change in created.items()]
            upsert(connection, graph_node, rows, key=_NODE_KEY, update="nothing")
            # read again under a lock: another transaction may have created some of them in between
            stored |= self._locked_nodes(connection, list(created))
        self._write_changes(connection, stored, changes)

    def _patch_nodes(self, connection: Connection, changes: Mapping[str, NodeChange]) -> list[str]:
        stored = self._locked_nodes(connection, sorted(changes))
        self._write_changes(connection, stored, {id: changes[id] for id in sorted(stored)})
        return [id for id in changes if id not in stored]

    def _write_changes(
        self, connection: Connection, stored: Mapping[str, NodeState], changes: Mapping[str, NodeChange]
    ) -> None:
        """Rows that a change leaves as they are cost nothing."""
        rows = []
        for id in sorted(changes):
            state = _changed(stored[id], changes[id])
            if state != stored[id]:
                rows.append(self._node_row(id, state))
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
        # a shared lock on both ends: neither can vanish before the edge stands
        ends = sorted({end for key in changes for end in (key.from_id, key.to_id)})
        numbers = self._numbers(connection, ends, lock=True)
        possible = {
            (numbers[key.from_id], key.type, numbers[key.to_id]): change
            for key, change in changes.items()
            if key.from_id in numbers and key.to_id in numbers
        }
        # an edge without properties merges into whatever is stored, so nothing has to be read
        bare = sorted(place for place, change in possible.items() if not change)
        self._insert_edges(connection, [(place, "{}") for place in bare])
        self._merge_edges(connection, {place: change for place, change in possible.items() if change})
        return [key for key in changes if key.from_id not in numbers or key.to_id not in numbers]

    def _merge_edges(self, connection: Connection, changes: Mapping[Place, Mapping[str, Any]]) -> None:
        stored = self._locked_edges(connection, sorted(changes))
        if created := sorted(changes.keys() - stored.keys()):
            self._insert_edges(connection, [(place, _merged("{}", changes[place])) for place in created])
            stored |= self._locked_edges(connection, created)
        rows = [
            self._edge_row(place, merged)
            for place in sorted(changes)
            if (merged := _merged(stored[place], changes[place])) != stored[place]
        ]
        if rows:
            upsert(connection, graph_edge, rows, key=_EDGE_KEY)

    def _insert_edges(self, connection: Connection, edges: Sequence[tuple[Place, str]]) -> None:
        if edges:
            upsert(connection, graph_edge, [self._edge_row(*edge) for edge in edges], key=_EDGE_KEY, update="nothing")

    def _delete_edges(self, connection: Connection, keys: Sequence[EdgeKey]) -> None:
        for condition in self._at(self._places(connection, keys)):
            connection.execute(delete(graph_edge).where(condition))

    def _places(self, connection: Connection, keys: Sequence[EdgeKey]) -> list[Place]:
        numbers = self._numbers(connection, sorted({end for key in keys for end in (key.from_id, key.to_id)}))
        return [
            (numbers[key.from_id], key.type, numbers[key.to_id])
            for key in keys
            if key.from_id in numbers and key.to_id in numbers
        ]

    def _delete_nodes(self, connection: Connection, ids: Sequence[str], with_subtree: bool) -> None:
        doomed = set(self._numbers(connection, ids).values())
        level = sorted(doomed) if with_subtree else []
        while level:
            children = {
                number
                for some in chunks(level, IDS_PER_STATEMENT)
                for number in connection.scalars(
                    select(graph_edge.c.to_node).where(
                        graph_edge.c.tenant_id == self._tenant,
                        graph_edge.c.from_node.in_(some),
                        graph_edge.c.type.in_(HIERARCHY),
                    )
                )
            }
            level = sorted(children - doomed)
            doomed.update(level)
        for some in chunks(sorted(doomed), IDS_PER_STATEMENT):
            self._delete_numbers(connection, some)

    def _clear_some(self, connection: Connection) -> int:
        numbers = connection.scalars(self._select(graph_node.c.id).limit(NODES_PER_DELETE)).all()
        for some in chunks(numbers, IDS_PER_STATEMENT):
            self._delete_numbers(connection, some)
        return len(numbers)

    def _delete_numbers(self, connection: Connection, numbers: Sequence[int]) -> None:
        """Their edges go with them, by the foreign keys."""
        connection.execute(
            delete(graph_node).where(graph_node.c.tenant_id == self._tenant, graph_node.c.id.in_(numbers))
        )

    def _lock_tenant(self, connection: Connection) -> None:
        """On SQLite a transaction that writes is alone anyway."""
        own = str(self._tenant)
        if not self._locked_nodes(connection, [own]):
            rows = [self._node_row(own, NodeState(TENANT, None, "{}"))]
            upsert(connection, graph_node, rows, key=_NODE_KEY, update="nothing")
            self._locked_nodes(connection, [own])

    def _locked_nodes(self, connection: Connection, ids: Sequence[str]) -> dict[str, NodeState]:
        return {
            row.node_id: NodeState(row.kind, row.vector_label, row.props)
            for some in chunks(ids, IDS_PER_STATEMENT)
            for row in connection.execute(
                self._select(*_NODE_COLUMNS)
                .where(graph_node.c.node_id.in_(some))
                .order_by(graph_node.c.node_id)
                .with_for_update()
            )
        }

    def _locked_edges(self, connection: Connection, places: Sequence[Place]) -> dict[Place, str]:
        table = graph_edge.c
        return {
            (row.from_node, row.type, row.to_node): row.props
            for condition in self._at(places)
            for row in connection.execute(
                select(table.from_node, table.type, table.to_node, table.props)
                .where(condition)
                .order_by(table.from_node, table.to_node)
                .with_for_update()
            )
        }

    def _numbers(self, connection: Connection, ids: Sequence[str], *, lock: bool = False) -> dict[str, int]:
        found: dict[str, int] = {}
        for some in chunks(ids, IDS_PER_STATEMENT):
            query = self._select(graph_node.c.node_id, graph_node.c.id).where(graph_node.c.node_id.in_(some))
            if lock:
                query = query.order_by(graph_node.c.node_id).with_for_update(read=True)
            found |= {row.node_id: row.id for row in connection.execute(query)}
        return found

    def _page(self, connection: Connection, after: str) -> Sequence[Row[Any]]:
        query = self._select(graph_node.c.id, *_NODE_COLUMNS).where(graph_node.c.node_id > after)
        return connection.execute(query.order_by(graph_node.c.node_id).limit(NODES_PER_PAGE)).all()

    def _edges(self, connection: Connection, condition: Any, types: Sequence[str] | None) -> list[Edge]:
        begin, end, table = graph_node.alias("begin"), graph_node.alias("end"), graph_edge.c
        query = (
            select(table.type, begin.c.node_id.label("from_id"), end.c.node_id.label("to_id"), table.props)
            .join(begin, and_(begin.c.tenant_id == table.tenant_id, begin.c.id == table.from_node))
            .join(end, and_(end.c.tenant_id == table.tenant_id, end.c.id == table.to_node))
            .where(table.tenant_id == self._tenant, condition)
        )
        if types is not None:
            query = query.where(table.type.in_(types))
        return [Edge(row.type, row.from_id, row.to_id, json.loads(row.props)) for row in connection.execute(query)]

    def _select(self, *columns: Any) -> Select[Any]:
        return select(*columns).where(graph_node.c.tenant_id == self._tenant)

    def _at(self, places: Sequence[Place]) -> Iterator[ColumnElement[bool]]:
        """Conditions for edges at these places, one per type and chunk.

        Pairs under one type, because MariaDB takes six times as long over triples; the begins once more alone, because
        SQLite finds no index for a pair and would walk all edges of the tenant.
        """
        by_type: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for from_node, type, to_node in sorted(places):
            by_type[type].append((from_node, to_node))
        table = graph_edge.c
        for type, pairs in sorted(by_type.items()):
            for some in chunks(pairs, IDS_PER_STATEMENT):
                yield and_(
                    table.tenant_id == self._tenant,
                    table.type == type,
                    table.from_node.in_({begin for begin, _ in some}),
                    tuple_(table.from_node, table.to_node).in_(some),
                )

    def _node_row(self, id: str, state: NodeState) -> dict[str, Any]:
        return {
            "tenant_id": self._tenant,
            "node_id": id,
            "kind": state.kind,
            "vector_label": state.vector,
            "props": state.props,
        }

    def _edge_row(self, place: Place, props: str) -> dict[str, Any]:
        from_node, type, to_node = place
        return {"tenant_id": self._tenant, "from_node": from_node, "type": type, "to_node": to_node, "props": props}


def _changed(stored: NodeState | None, change: NodeChange) -> NodeState:
    before = stored or NodeState(KNOWLEDGE, None, "{}")
    return NodeState(change.kind or before.kind, change.vector or before.vector, _merged(before.props, change.props))


def _merged(stored: str, change: Mapping[str, Any]) -> str:
    return canonical_json(merge_props(json.loads(stored), change))


def _node(row: Row[Any]) -> Node:
    labels = {row.kind} if row.kind == TENANT else {row.kind, KNOWLEDGE}
    if row.vector_label:
        labels.add(row.vector_label)
    return Node(row.node_id, frozenset(labels), json.loads(row.props))


def _sorted(edges: Iterable[Edge]) -> list[Edge]:
    return sorted(edges, key=lambda edge: (edge.from_id, edge.type, edge.to_id))

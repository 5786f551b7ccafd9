"""The graph on Neo4j: UNWIND batches in managed transactions, every wait bounded."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from neo4j import GraphDatabase, ManagedTransaction, Record, unit_of_work
from neo4j.exceptions import (
    AuthError,
    ConfigurationError,
    ConnectionAcquisitionTimeoutError,
    ConstraintError,
    DriverError,
    Neo4jError,
    ServiceUnavailable,
    SessionExpired,
    TransientError,
)

from platform_defs.errors import GraphError, one_line
from platform_defs.graph import cypher
from platform_defs.graph.batch_store import BatchStore
from platform_defs.graph.checks import check_edge_type
from platform_defs.graph.errors import GraphAccessDenied, GraphConflict, GraphUnavailable
from platform_defs.graph.model import Applied, Edge, EdgeKey, Node
from platform_defs.graph.port import GraphTransaction
from platform_defs.graph.steps import NodeChange, Step
from platform_defs.graph.vocabulary import (
    HIERARCHY,
    KNOWLEDGE,
    KNOWLEDGE_KINDS,
    RESERVED_PROPERTIES,
    TENANT,
    vector_dimension,
    vector_label,
)
from platform_defs.store.chunks import chunks

T = TypeVar("T")

ROWS_PER_STATEMENT = 1000
NODES_PER_PAGE = 1000
NODES_PER_DELETE = 5000
SCHEMA_TIMEOUT_S = 60
# two processes that create the same rule at once: the second is told so although it said IF NOT EXISTS
_SCHEMA_RACE = "AlreadyExists"
_TIMED_OUT = ("TransactionTimedOut", "TransactionTimedOutClientConfiguration", "LockClientStopped", "Terminated")


@dataclass(frozen=True)
class Timeouts:
    """Seconds; the driver alone would retry for 30. A caller that must answer sooner asks for less."""

    connect: float = 2.0
    acquire: float = 3.0
    transaction: float = 10.0
    retry: float = 3.0


class Neo4jGraph:
    """A driver with its pool; opening it does not connect."""

    def __init__(
        self, url: str, *, user: str = "", password: str = "", timeouts: Timeouts | None = None, pool_size: int = 20
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        parts = urlsplit(url)
        self._name = f"Neo4j at {parts.scheme}://{parts.hostname}:{parts.port or 7687}"
        try:
            self._driver = GraphDatabase.driver(
                url,
                auth=(user, password) if user else None,
                connection_timeout=self._timeouts.connect,
                connection_acquisition_timeout=self._timeouts.acquire,
                max_transaction_retry_time=self._timeouts.retry,
                max_connection_pool_size=pool_size,
                # a label that nobody has used yet is no news
                notifications_min_severity="OFF",
                user_agent="platform-defs",
            )
        except (ConfigurationError, ValueError) as error:
            raise GraphError(f"{self._name}: {_server_message(error)}") from error

    def for_tenant(self, tenant: int) -> "Neo4jStore":
        return Neo4jStore(tenant, self)

    def ping(self) -> None:
        with self.translated():
            self._driver.verify_connectivity()

    def ensure_schema(self) -> None:
        self._create(cypher.SCHEMA)

    def ensure_vector_index(self, dimension: int, similarity: str) -> str:
        label = vector_label(dimension, similarity)
        name = label.lower()
        self._create(
            {
                name: cypher.CREATE_VECTOR_INDEX.format(
                    name=name, vector=label, dimension=dimension, similarity=similarity
                )
            }
        )
        return label

    def close(self) -> None:
        self._driver.close()

    def write(self, work: Callable[[ManagedTransaction], T]) -> T:
        with self.translated(), self._driver.session() as session:
            return session.execute_write(unit_of_work(timeout=self._timeouts.transaction)(work))

    def read(self, work: Callable[[ManagedTransaction], T]) -> T:
        with self.translated(), self._driver.session() as session:
            return session.execute_read(unit_of_work(timeout=self._timeouts.transaction)(work))

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the driver as errors of the port, in one line, without credentials."""
        try:
            yield
        except AuthError as error:
            raise GraphAccessDenied(f"{self._name} refused the credentials: {_server_message(error)}") from error
        except ConstraintError as error:
            raise GraphConflict(f"{self._name}: {_server_message(error)}") from error
        except (
            TransientError,
            ServiceUnavailable,
            SessionExpired,
            ConnectionAcquisitionTimeoutError,
            OSError,
        ) as error:
            raise GraphUnavailable(f"{self._name} does not answer: {_server_message(error)}") from error
        except DriverError as error:
            raise GraphError(f"{self._name}: {_server_message(error)}") from error
        except Neo4jError as error:
            if (error.code or "").endswith(_TIMED_OUT):
                raise GraphUnavailable(f"{self._name} took too long: {_server_message(error)}") from error
            raise GraphError(f"{self._name}: {_server_message(error)}") from error

    def _create(self, statements: Mapping[str, str]) -> None:
        with self.translated():
            existing = {record["name"] for record in self._on_schema(cypher.SHOW_INDEX_NAMES)}
            for name in sorted(statements.keys() - existing):
                try:
                    self._on_schema(statements[name])
                except Neo4jError as error:
                    if not (error.code or "").endswith(_SCHEMA_RACE):
                        raise
            self._on_schema(cypher.AWAIT_INDEXES, seconds=SCHEMA_TIMEOUT_S)

    def _on_schema(self, statement: str, **parameters: Any) -> list[Record]:
        """A statement on the schema, which has no tenant and may wait for the index of a large graph."""

        @unit_of_work(timeout=SCHEMA_TIMEOUT_S)
        def work(tx: ManagedTransaction) -> list[Record]:
            return list(tx.run(statement, parameters))

        with self._driver.session() as session:
            return session.execute_write(work)


class Runner(Protocol):
    """Whose transaction the work runs in: the graph gives each its own."""

    def write(self, work: Callable[[ManagedTransaction], T]) -> T: ...

    def read(self, work: Callable[[ManagedTransaction], T]) -> T: ...


class OneTransaction:
    """All work in the transaction of an update, which commits and is repeated as a whole."""

    def __init__(self, tx: ManagedTransaction) -> None:
        self._tx = tx

    def write(self, work: Callable[[ManagedTransaction], T]) -> T:
        return work(self._tx)

    def read(self, work: Callable[[ManagedTransaction], T]) -> T:
        return work(self._tx)


class Neo4jStore(BatchStore[ManagedTransaction]):
    """One tenant's graph on Neo4j."""

    def __init__(self, tenant: int, graph: Runner) -> None:
        super().__init__(tenant)
        self._graph = graph
        self._tenant_node = str(tenant)

    def clear(self) -> None:
        for label in (KNOWLEDGE, TENANT):
            while self._graph.write(lambda tx, label=label: self._clear_some(tx, label)):  # type: ignore[misc]
                pass

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        return self._graph.read(lambda tx: self._nodes(tx, ids))

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        templates = (cypher.EDGES_OUT, cypher.EDGES_IN)
        return self._graph.read(lambda tx: self._edges(tx, templates, ids, types))

    def links(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        return self._graph.read(lambda tx: self._links(tx, keys))

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        def locked(tx: ManagedTransaction) -> T:
            self._execute(tx, cypher.LOCK_TENANT, {"label": TENANT})
            return work(Neo4jStore(self._tenant, OneTransaction(tx)))

        return self._graph.write(locked)

    def stream(self) -> Iterator[Node | Edge]:
        for ids in self._pages():
            found = self.nodes(ids)
            yield from (found[id] for id in ids if id in found)
        for ids in self._pages():
            yield from self._graph.read(lambda tx, ids=ids: self._edges(tx, (cypher.EDGES_OUT,), ids, None))  # type: ignore[misc]

    def _run(self, steps: Sequence[Step]) -> Applied:
        return self._graph.write(lambda tx: self._carry_out(tx, steps))

    def _upsert_nodes(self, tx: ManagedTransaction, changes: Mapping[str, NodeChange]) -> None:
        by_kind: dict[str, list[str]] = defaultdict(list)
        for id, change in changes.items():
            by_kind[change.kind or KNOWLEDGE].append(id)
        for kind, ids in sorted(by_kind.items()):
            label = TENANT if kind == TENANT else KNOWLEDGE
            rows = self._node_rows(changes, ids)
            self._each(tx, cypher.UPSERT_NODES, rows, label=label, kind=kind)
            if kind in KNOWLEDGE_KINDS:
                others = sorted(KNOWLEDGE_KINDS - {kind})
                for some in chunks(ids, ROWS_PER_STATEMENT):
                    self._execute(tx, cypher.REMOVE_OTHER_KINDS, {"others": ":".join(others)}, ids=some, kinds=others)
        self._set_vectors(tx, changes)

    def _patch_nodes(self, tx: ManagedTransaction, changes: Mapping[str, NodeChange]) -> list[str]:
        found: set[str] = set()
        for label, ids in self._by_label(changes):
            rows = self._node_rows(changes, ids)
            found.update(str(record["id"]) for record in self._each(tx, cypher.PATCH_NODES, rows, label=label))
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
            found.update(record["at"] for record in self._each(tx, cypher.UPSERT_EDGES, rows, **names))
        return [key for at, key in enumerate(keys) if at not in found]

    def _delete_edges(self, tx: ManagedTransaction, keys: Sequence[EdgeKey]) -> None:
        for names, places in self._by_edge_form(keys):
            self._each(tx, cypher.DELETE_EDGES, [self._edge_row(keys[at]) for at in places], **names)

    def _delete_nodes(self, tx: ManagedTransaction, ids: Sequence[str], with_subtree: bool) -> None:
        doomed = dict.fromkeys(ids)
        level = list(doomed) if with_subtree else []
        while level:
            children = {
                str(record["id"])
                for label, some in self._by_label(level)
                for record in self._over_ids(tx, cypher.CHILDREN, some, label=label, hierarchy="|".join(HIERARCHY))
            }
            level = sorted(children - doomed.keys())
            doomed |= dict.fromkeys(level)
        for label, some in self._by_label(doomed):
            self._over_ids(tx, cypher.DELETE_NODES, some, label=label)

    def _clear_some(self, tx: ManagedTransaction, label: str) -> int:
        (record,) = self._execute(tx, cypher.CLEAR, {"label": label}, limit=NODES_PER_DELETE)
        return int(record["deleted"])

    def _nodes(self, tx: ManagedTransaction, ids: Sequence[str]) -> dict[str, Node]:
        found = {}
        for label, some in self._by_label(ids):
            for record in self._over_ids(tx, cypher.NODES, some, label=label):
                id = str(record["id"])
                props = {name: value for name, value in record["props"].items() if name not in RESERVED_PROPERTIES}
                found[id] = Node(id, frozenset(record["labels"]), props)
        return found

    def _edges(
        self, tx: ManagedTransaction, templates: Iterable[str], ids: Sequence[str], types: Sequence[str] | None
    ) -> list[Edge]:
        found: dict[EdgeKey, Edge] = {}
        for template in templates:
            for label, some in self._by_label(ids):
                for record in self._over_ids(tx, template, some, {"types": types}, label=label):
                    edge = _edge(record)
                    found[edge.key] = edge
        return sorted(found.values(), key=lambda edge: (edge.from_id, edge.type, edge.to_id))

    def _links(self, tx: ManagedTransaction, keys: Sequence[EdgeKey]) -> dict[EdgeKey, Edge]:
        by_labels: dict[tuple[str, str], dict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
        for key in keys:
            labels = self._label(key.from_id), self._label(key.to_id)
            by_labels[labels][key.from_id, key.to_id].add(check_edge_type(key.type))
        found: dict[EdgeKey, Edge] = {}
        for (from_label, to_label), pairs in sorted(by_labels.items()):
            types = "|".join(sorted(set().union(*pairs.values())))
            rows = [
                self._edge_row(EdgeKey("", *pair)) | {"types": sorted(wanted)} for pair, wanted in sorted(pairs.items())
            ]
            names = {"from_label": from_label, "to_label": to_label, "types": types}
            found |= {edge.key: edge for edge in map(_edge, self._each(tx, cypher.LINKS, rows, **names))}
        return found

    def _pages(self) -> Iterator[list[str]]:
        """All ids in order; the Tenant node, which is no Knowledge, takes its place among them."""
        after, pending = "", [self._tenant_node]
        while True:
            page = self._graph.read(lambda tx, after=after: self._ids_after(tx, after))  # type: ignore[misc]
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
        """Places of keys grouped by what has to stand in the statement's text."""
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
        """The seed keeps the id of a Tenant node as a number."""
        return self._tenant if id == self._tenant_node else id

    def _each(
        self, tx: ManagedTransaction, template: str, rows: Sequence[Mapping[str, Any]], **names: str
    ) -> list[Mapping[str, Any]]:
        return [
            record
            for some in chunks(rows, ROWS_PER_STATEMENT)
            for record in self._execute(tx, template, names, rows=some)
        ]

    def _over_ids(
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
        # rows come collected in one record: the driver spends more on a record than on what is in it
        return [row for record in records for row in record.get("found", (record,))]


def _edge(record: Mapping[str, Any]) -> Edge:
    return Edge(record["type"], str(record["from"]), str(record["to"]), record["props"])


def _server_message(error: Exception) -> str:
    """One line; the text of a Neo4jError would repeat its code."""
    message = error.message if isinstance(error, Neo4jError) else None
    return message.splitlines()[0] if message else one_line(error)

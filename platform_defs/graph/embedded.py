"""The graph in tables of the platform's own database, where it can join the transaction of a caller."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, select

from platform_defs.graph.batch_store import OpenTransaction, Transactions
from platform_defs.graph.embedded_store import EmbeddedStore
from platform_defs.graph.port import GraphStore
from platform_defs.graph.vocabulary import vector_label
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.graph import graph_node, graph_vector_index
from platform_defs.store.upsert import upsert

T = TypeVar("T")


class EngineTransactions:
    """A transaction of its own for each call, repeated after deadlocks and lost connections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def write(self, work: Callable[[Connection], T]) -> T:
        return transact(self._engine, work)

    def read(self, work: Callable[[Connection], T]) -> T:
        return read(self._engine, work)


class EmbeddedGraph:
    """The graph of all tenants in one database; closing it leaves the caller's engine open."""

    def __init__(self, transactions: Transactions[Connection]) -> None:
        self._transactions = transactions

    @classmethod
    def on(cls, engine: Engine) -> "EmbeddedGraph":
        return cls(EngineTransactions(engine))

    @classmethod
    def in_transaction(cls, connection: Connection) -> "EmbeddedGraph":
        """A graph whose writes are committed, rolled back and repeated together with the caller's own."""
        return cls(OpenTransaction(connection))

    def for_tenant(self, tenant: int) -> EmbeddedStore:
        return EmbeddedStore(tenant, self._transactions)

    def ping(self) -> None:
        self._transactions.read(lambda connection: connection.execute(select(graph_node.c.id).limit(1)).first())

    def ensure_schema(self) -> None:
        """Nothing to do: the tables come with the migrations."""

    def ensure_vector_index(self, dimension: int, similarity: str) -> str:
        """Records the label; there is no index, since only Neo4j answers searches by vector."""
        label = vector_label(dimension, similarity)
        self._transactions.write(
            lambda connection: upsert(
                connection, graph_vector_index, [{"label": label}], key=("label",), update="nothing"
            )
        )
        return label

    def rehearse(self, tenant: int, work: Callable[[GraphStore], None]) -> None:
        """Nothing to do: statements of a database in the same process, or of MySQL, need no warm-up."""

    def close(self) -> None:
        """Nothing to do: the engine is the caller's."""

"""The connection to Neo4j: opening it, its schema, its transactions with bounded waits, and its errors."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from neo4j import GraphDatabase, ManagedTransaction, Record, Session, unit_of_work
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
from platform_defs.graph.batch_store import OpenTransaction
from platform_defs.graph.errors import (
    GraphAccessDenied,
    GraphConflict,
    GraphInterrupted,
    GraphLost,
    GraphTooSlow,
    GraphUnavailable,
)
from platform_defs.graph.neo4j_store import Neo4jStore
from platform_defs.graph.port import GraphStore
from platform_defs.graph.vocabulary import vector_label

T = TypeVar("T")

SCHEMA_TIMEOUT_S = 60
# of two processes that create the same constraint at once, one gets this error in spite of IF NOT EXISTS
_SCHEMA_RACE = "AlreadyExists"
# the server answers, but not the database in it
_NOT_STARTED = "DatabaseUnavailable"
_TIMED_OUT = ("TransactionTimedOut", "TransactionTimedOutClientConfiguration")
# The transaction waited for a lock until its time was over, or somebody or a server that stops has ended it. The driver
# makes a ClientError of what the server calls a TransientError, because it must not repeat such a transaction itself.
_ENDED = ("Terminated", "LockClientStopped")


@dataclass(frozen=True)
class Timeouts:
    """How many seconds to wait for Neo4j; the driver by itself would retry for 30."""

    connect: float = 2.0
    acquire: float = 3.0
    transaction: float = 10.0
    retry: float = 3.0
    # a server that has just started needs seconds for what takes milliseconds later
    rehearsal: float = 60.0


class Neo4jGraph:
    """A driver with its pool; opening it does not connect."""

    def __init__(
        self, url: str, *, user: str = "", password: str = "", timeouts: Timeouts | None = None, pool_size: int = 20
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self.pool_size = pool_size
        self.connections_in_use = 0
        self._lock = threading.Lock()
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
                # otherwise the driver logs a warning for every label that no node has yet
                notifications_min_severity="OFF",
                user_agent="platform-defs",
            )
        except (ConfigurationError, ValueError) as error:
            raise GraphError(f"{self._name}: {_server_message(error)}") from error

    def for_tenant(self, tenant: int) -> Neo4jStore:
        return Neo4jStore(tenant, self)

    def ping(self) -> None:
        with self._translate_errors():
            self._driver.verify_connectivity()

    def ensure_schema(self) -> None:
        self._create_missing(cypher.SCHEMA)

    def ensure_vector_index(self, dimension: int, similarity: str) -> str:
        label = vector_label(dimension, similarity)
        name = label.lower()
        self._create_missing(
            {
                name: cypher.CREATE_VECTOR_INDEX.format(
                    name=name, vector=label, dimension=dimension, similarity=similarity
                )
            }
        )
        return label

    def rehearse(self, tenant: int, work: Callable[[GraphStore], None]) -> None:
        with (
            self._translate_errors(),
            self._session() as session,
            session.begin_transaction(timeout=self._timeouts.rehearsal) as transaction,
        ):
            # a ManagedTransaction is a Transaction without commit and rollback
            handle = cast(ManagedTransaction, transaction)
            work(Neo4jStore(tenant, OpenTransaction(handle)))
            transaction.rollback()

    def close(self) -> None:
        self._driver.close()

    def write(self, work: Callable[[ManagedTransaction], T]) -> T:
        with self._translate_errors(), self._session() as session:
            return session.execute_write(unit_of_work(timeout=self._timeouts.transaction)(work))

    def read(self, work: Callable[[ManagedTransaction], T]) -> T:
        with self._translate_errors(), self._session() as session:
            return session.execute_read(unit_of_work(timeout=self._timeouts.transaction)(work))

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """A session, which uses one connection of the pool."""
        with self._lock:
            self.connections_in_use += 1
        try:
            with self._driver.session() as session:
                yield session
        finally:
            with self._lock:
                self.connections_in_use -= 1

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raises errors of the driver as errors of the port, in one line, without credentials."""
        try:
            yield
        except AuthError as error:
            raise GraphAccessDenied(f"{self._name} refused the credentials: {_server_message(error)}") from error
        except ConstraintError as error:
            raise GraphConflict(f"{self._name}: {_server_message(error)}") from error
        except (ServiceUnavailable, SessionExpired, OSError) as error:
            raise GraphLost(f"{self._name} does not answer: {_server_message(error)}") from error
        except (TransientError, ConnectionAcquisitionTimeoutError) as error:
            if isinstance(error, Neo4jError) and (error.code or "").endswith(_NOT_STARTED):
                raise GraphLost(f"{self._name} has not started or is stopping: {_server_message(error)}") from error
            raise GraphUnavailable(f"{self._name} does not answer: {_server_message(error)}") from error
        except DriverError as error:
            raise GraphError(f"{self._name}: {_server_message(error)}") from error
        except Neo4jError as error:
            if (error.code or "").endswith(_TIMED_OUT):
                raise GraphTooSlow(f"{self._name} took too long: {_server_message(error)}") from error
            if (error.code or "").endswith(_ENDED):
                raise GraphInterrupted(f"{self._name} ended a transaction: {_server_message(error)}") from error
            raise GraphError(f"{self._name}: {_server_message(error)}") from error

    def _create_missing(self, statements: Mapping[str, str]) -> None:
        with self._translate_errors():
            existing = {record["name"] for record in self._run_on_schema(cypher.SHOW_INDEX_NAMES)}
            for name in sorted(statements.keys() - existing):
                try:
                    self._run_on_schema(statements[name])
                except Neo4jError as error:
                    if not (error.code or "").endswith(_SCHEMA_RACE):
                        raise
            self._run_on_schema(cypher.AWAIT_INDEXES, seconds=SCHEMA_TIMEOUT_S)

    def _run_on_schema(self, statement: str, **parameters: Any) -> list[Record]:
        """Runs a statement on the schema: it has no tenant, and may wait until the index of a large graph is built."""

        @unit_of_work(timeout=SCHEMA_TIMEOUT_S)
        def work(tx: ManagedTransaction) -> list[Record]:
            return list(tx.run(statement, parameters))

        with self._session() as session:
            return session.execute_write(work)


def _server_message(error: Exception) -> str:
    """One line; the text of a Neo4jError would repeat its code."""
    message = error.message if isinstance(error, Neo4jError) else None
    return message.splitlines()[0] if message else one_line(error)

"""Errors of the graph, on either store.

GraphError               the server itself: a full disk, a missing right, …
├── InvalidGraphValue    a value that no store may hold; nothing was written; trying again cannot help
├── GraphConflict        another tenant already has this tenant code
├── GraphAccessDenied    Neo4j refused the user or the password
└── GraphUnavailable     Neo4j does not answer in time; trying again may help
    ├── GraphTooSlow     it answers, but has ended a transaction that took too long: less at a time may help
    ├── GraphInterrupted it answers, but has ended a transaction that waited for a lock, or that somebody told it to end
    └── GraphLost        there is no connection to Neo4j: it was ended, or is starting again
"""

from platform_defs.errors import GraphError


class InvalidGraphValue(GraphError):
    """`field` names what was refused (`id`, `labels`, `props.name`, …), `reason` says what was expected."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class GraphConflict(GraphError):
    """A uniqueness rule across tenants was violated."""


class GraphAccessDenied(GraphError):
    """The graph server refused the credentials."""


class GraphUnavailable(GraphError):
    """The graph server does not answer in time."""

    advice = "start it, or mend PLATFORM_GRAPH_URL"


class GraphTooSlow(GraphUnavailable):
    """The graph server has ended a transaction that took longer than it may."""

    advice = "look at what else Neo4j does; a write that is too large is tried again in parts"


class GraphInterrupted(GraphUnavailable):
    """The graph server has ended a transaction for a reason outside of it: the lock of another one, an operator."""

    advice = "look at the transactions of Neo4j (SHOW TRANSACTIONS): one of them may hold a lock"


class GraphLost(GraphUnavailable):
    """There is no connection to the graph server."""

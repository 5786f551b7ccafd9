"""The nodes of a run as its drive knows them, and a draft of their changes that counts only once it is committed."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from platform_defs.chains.dag import Dag, Node
from platform_defs.chains.runs import node_rows
from platform_defs.chains.runs.happenings import Happening
from platform_defs.chains.runs.node_rows import NodeRow
from platform_defs.chains.runs.whole_run import set_statuses
from platform_defs.chains.states import NodeStatus

_FIELDS = frozenset(field.name for field in fields(NodeRow))


class Board:
    """The nodes of a run.

    `ready` are PENDING nodes that may start, in order. `idle` are active nodes without a thread, because they wait or
    are RETRYING. `is_stale` says that `ready` must be found anew by looking at every node.
    """

    def __init__(self, dag: Dag, nodes: Mapping[str, NodeRow]) -> None:
        self.dag = dag
        self.nodes = dict(nodes)
        self.ready: list[str] = []
        self.idle = {row.node_id for row in nodes.values() if row.is_idle}
        self.is_stale = True
        self._below: dict[str, list[str]] = {node.id: [] for node in dag.nodes}
        for node in dag.in_order:
            for dependency in node.depends_on:
                self._below[dependency].append(node.id)

    def below(self, node_id: str) -> Iterable[str]:
        return self._below[node_id]

    def idle_rows(self) -> list[NodeRow]:
        return [self.nodes[node_id] for node_id in sorted(self.idle)]

    def due_at(self, row: NodeRow, now: datetime) -> datetime:
        """When something must be done with an idle node: another attempt, another look, or the end of its time."""
        due_at = row.next_try_at or now
        deadline = deadline_of(self.dag.by_id[row.node_id], row.started_at) if row.is_waiting else None
        return due_at if deadline is None else min(due_at, deadline)

    def commit(self, draft: "Draft") -> None:
        """Takes over what was written. To be called only after the transaction of the draft was committed."""
        if draft.reloaded is not None:
            self.nodes = dict(draft.reloaded)
            self.idle = {row.node_id for row in self.nodes.values() if row.is_idle}
        self.nodes.update(draft.changed)
        for row in draft.changed.values():
            (self.idle.add if row.is_idle else self.idle.discard)(row.node_id)
        self.ready, self.is_stale = draft.ready, draft.is_stale


class Draft:
    """Changes of nodes that are written in one transaction. If that is repeated, another draft is made."""

    def __init__(self, board: Board, run_id: str, connection: Connection, *, reload: bool) -> None:
        self.board = board
        self.run_id = run_id
        self.connection = connection
        self.reloaded = node_rows.load_nodes(connection, run_id) if reload else None
        self.changed: dict[str, NodeRow] = {}
        self.happenings: list[Happening] = []
        # The attempts to be executed once this is committed.
        self.started: list[NodeRow] = []
        self.ready = list(board.ready)
        self.is_stale = board.is_stale or reload
        # Somebody else changed a node at the same time.
        self.must_reload = False

    def row(self, node_id: str) -> NodeRow:
        return self.changed.get(node_id) or self._base[node_id]

    def statuses(self) -> dict[str, NodeStatus]:
        return {name: row.status for name, row in {**self._base, **self.changed}.items()}

    def idle_rows(self) -> list[NodeRow]:
        candidates = self.board.idle if self.reloaded is None else self.reloaded.keys()
        rows = (self.row(node_id) for node_id in sorted(candidates | self.changed.keys()))
        return [row for row in rows if row.is_idle]

    def write(self, row: NodeRow, values: Mapping[str, Any]) -> bool:
        """Returns False if somebody was faster."""
        is_written = node_rows.change(self.connection, self.run_id, row, values)
        if not is_written and not node_rows.has_values(self.connection, self.run_id, row.node_id, values):
            self.must_reload = True
            return False
        self.changed[row.node_id] = replace(row, **{name: value for name, value in values.items() if name in _FIELDS})
        return True

    def move(self, node_ids: tuple[str, ...], was: NodeStatus, becomes: NodeStatus) -> None:
        set_statuses(self.connection, self.run_id, node_ids, was, becomes)
        self.changed |= {node_id: replace(self.row(node_id), status=becomes) for node_id in node_ids}

    def add_ready_below(self, node_id: str) -> None:
        """After a success: the nodes below that have waited only for it may start."""
        for below in self.board.below(node_id):
            above = self.board.dag.by_id[below].depends_on
            is_waiting = self.row(below).status is NodeStatus.PENDING and below not in self.ready
            if is_waiting and all(self.row(dependency).status is NodeStatus.SUCCESS for dependency in above):
                self.ready.append(below)

    @property
    def _base(self) -> Mapping[str, NodeRow]:
        return self.board.nodes if self.reloaded is None else self.reloaded


def deadline_of(node: Node, started_at: datetime | None) -> datetime | None:
    """When the present attempt has used up the time of its node."""
    return None if node.timeout_s is None or started_at is None else started_at + timedelta(seconds=node.timeout_s)

"""What table arrival needs from others: a queue for rows of work, and somebody to write webhook deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection


@dataclass(frozen=True)
class Queued:
    """A row of work and the Dagster run that it will be."""

    work_id: int
    run_id: str


class Queue(Protocol):
    """Writes rows of work in the caller's transaction, one per payload, in their order."""

    def __call__(self, connection: Connection, payloads: Sequence[Mapping[str, Any]]) -> list[Queued]: ...


class Notify(Protocol):
    """Writes the deliveries of a successful execution in the transaction that closes it; returns how many."""

    def __call__(
        self, connection: Connection, *, task_id: int, model_id: str, op_time: str, kpi_ids: Sequence[str], at: datetime
    ) -> int: ...

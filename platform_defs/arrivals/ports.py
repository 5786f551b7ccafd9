"""What table arrival needs from others: a function that writes the webhook deliveries of an execution."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection


class Notify(Protocol):
    """Writes the deliveries of a successful execution in the transaction that closes it; returns how many."""

    def __call__(
        self, connection: Connection, *, task_id: int, model_id: str, op_time: str, kpi_ids: Sequence[str], at: datetime
    ) -> int: ...

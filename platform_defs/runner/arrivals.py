"""The queue of table arrival: its executions become rows of work, in the transaction that wants them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from platform_defs.arrivals.ports import Queued
from platform_defs.work import rows
from platform_defs.work.jobs import MODEL_RUN


def queue(connection: Connection, payloads: Sequence[Mapping[str, Any]]) -> list[Queued]:
    return [Queued(row.id, row.run_id) for row in rows.add(connection, MODEL_RUN, payloads)]

"""The audit: who changed which chain, job, run or node, how it was before and after, and why."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, insert, select

from platform_defs.store.engine import read
from platform_defs.store.tables.chains import job_audit


def record(
    connection: Connection,
    *,
    actor: str,
    action: str,
    object_id: str,
    node_id: str | None = None,
    before: Any = None,
    after: Any = None,
    reason: str | None = None,
) -> None:
    """Writes one row, in the transaction that makes the change."""
    connection.execute(
        insert(job_audit).values(
            actor=actor,
            action=action,
            object_id=object_id,
            node_id=node_id,
            before_json=before,
            after_json=after,
            reason=reason,
        )
    )


def newest_entries(engine: Engine, *, object_id: str | None = None, limit: int = 50) -> Sequence[Row[Any]]:
    """The newest rows first; only those of one chain, job or run if its id is given."""
    query = select(job_audit).order_by(job_audit.c.id.desc()).limit(limit)
    if object_id is not None:
        query = query.where(job_audit.c.object_id == object_id)
    return read(engine, lambda connection: connection.execute(query).all())

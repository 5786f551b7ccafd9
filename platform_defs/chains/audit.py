"""The audit: who changed which chain, job, run or node, how it was before and after, and why."""

from typing import Any

from sqlalchemy import Connection, insert

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

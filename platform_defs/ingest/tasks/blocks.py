"""Endpoints that are stopped until an operator allows them again: after a fatal error (L4), or with their source."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, delete, false, select

from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_endpoint_block
from platform_defs.store.tables.registry import reg_provenance
from platform_defs.store.upsert import upsert


@dataclass(frozen=True)
class EndpointBlock:
    provenance_code: str
    endpoint_name: str
    reason: str
    error_code: str | None
    blocked_at: datetime

    def __str__(self) -> str:
        name = f"{self.provenance_code}/{self.endpoint_name} is blocked since {self.blocked_at:%F %T} UTC"
        unblock = f"platform ingest unblock {self.provenance_code} {self.endpoint_name}"
        return f"{name}: {self.reason}. Correct the cause, such as a key that was refused, then run `{unblock}`."


def block_endpoint(
    connection: Connection,
    provenance_code: str,
    endpoint_name: str,
    *,
    reason: str,
    error_code: str,
    task_id: int,
    now: datetime,
) -> None:
    """Blocks an endpoint; one that is blocked already gets the new reason."""
    row = {
        "provenance_code": provenance_code,
        "endpoint_name": endpoint_name,
        "reason": reason,
        "error_code": error_code,
        "task_id": task_id,
        "blocked_at": now,
    }
    upsert(connection, ing_endpoint_block, [row], key=["provenance_code", "endpoint_name"])


def unblock_endpoint(engine: Engine, provenance_code: str, endpoint_name: str) -> bool:
    """True if it was blocked."""
    block = ing_endpoint_block.c
    mine = (block.provenance_code == provenance_code) & (block.endpoint_name == endpoint_name)
    return transact(engine, lambda connection: connection.execute(delete(ing_endpoint_block).where(mine)).rowcount) == 1


def why_not_asked(engine: Engine, provenance_code: str, endpoint_name: str) -> str | None:
    """What keeps the tasks of an endpoint waiting, and what an operator can do about it; None where nothing does."""
    wanted = (provenance_code, endpoint_name)
    for block in list_blocks(engine):
        if (block.provenance_code, block.endpoint_name) == wanted:
            return str(block)
    return next((_paused_text(code) for code in paused_sources(engine) if code == provenance_code), None)


def paused_sources(engine: Engine) -> list[str]:
    """Sources that are not active: what was planned for them waits."""
    query = select(reg_provenance.c.provenance_code).where(reg_provenance.c.is_active == false())
    return sorted(read(engine, lambda connection: connection.execute(query).scalars().all()))


def _paused_text(code: str) -> str:
    return f"The source {code} is not active, and its tasks wait: load its Registry file with `active: true`."


def list_blocks(engine: Engine) -> list[EndpointBlock]:
    block = ing_endpoint_block.c
    query = select(ing_endpoint_block).order_by(block.provenance_code, block.endpoint_name)
    rows = read(engine, lambda connection: connection.execute(query).all())
    return [
        EndpointBlock(row.provenance_code, row.endpoint_name, row.reason, row.error_code, row.blocked_at)
        for row in rows
    ]

"""Endpoints that are stopped after a fatal error (L4), until an operator allows them again."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, delete, select

from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_endpoint_block
from platform_defs.store.upsert import upsert


@dataclass(frozen=True)
class EndpointBlock:
    provenance_code: str
    endpoint_name: str
    reason: str
    error_code: str | None
    blocked_at: datetime


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


def list_blocks(engine: Engine) -> list[EndpointBlock]:
    block = ing_endpoint_block.c
    query = select(ing_endpoint_block).order_by(block.provenance_code, block.endpoint_name)
    rows = read(engine, lambda connection: connection.execute(query).all())
    return [
        EndpointBlock(row.provenance_code, row.endpoint_name, row.reason, row.error_code, row.blocked_at)
        for row in rows
    ]

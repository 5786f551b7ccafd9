"""Columns that several tables of ingest share."""

from typing import Any

from sqlalchemy import BigInteger, Column

from platform_defs.store.types import Fixed, Instant, Str

CODE = Str(64)
HASH = Fixed(64)


def provenance() -> Column[str]:
    return Column("provenance_code", CODE, nullable=False)


def operation() -> Column[str]:
    return Column("operation_code", Str(32), nullable=False)


def status(first: str) -> Column[str]:
    return Column("status_code", Str(32), nullable=False, server_default=first)


def version() -> Column[int]:
    return Column("version", BigInteger, nullable=False, server_default="0")


def reference(name: str, *, nullable: bool = True) -> Column[int]:
    # the seeds build no physical foreign keys between these tables: archiving moves each of them on its own
    return Column(name, BigInteger, nullable=nullable)


def window() -> list[Column[Any]]:
    return [Column("window_from", Instant), Column("window_to", Instant)]

"""Computes a batch: reads the rows of the model's query into a file, then replaces the stored values of the batch.

These are two steps, so that no lock on the platform's database is held while a slow source is read. The second step is
one transaction, so that readers see the values of one execution, never a mixture of two.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Engine, delete

from platform_defs.arrivals.errors import ModelFailed
from platform_defs.arrivals.models.model import Model
from platform_defs.arrivals.models.sql import render_query
from platform_defs.arrivals.models.totals import meaningful_totals
from platform_defs.canonical import canonical_json, sha256_hex
from platform_defs.sources.errors import MAX_MESSAGE, SourceError
from platform_defs.sources.named import Sources
from platform_defs.sources.transactions import ReadTransaction
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import transact
from platform_defs.store.exact_numbers import decimal_text, exact_number
from platform_defs.store.tables.arrivals import metrics_kpi_value
from platform_defs.store.upsert import upsert

WRITTEN_ROWS = 1000
SPOOL_CACHE_KIB = 8 * 1024


@dataclass(frozen=True)
class Counts:
    """How many rows the query returned (computed), and how many KPI values of them are not null (stored)."""

    computed: int
    stored: int
    # the sum over all rows of each KPI whose values may be added up
    totals: Mapping[str, Decimal] = field(default_factory=dict, compare=False)


def compute(
    engine: Engine,
    model: Model,
    op_time: str,
    *,
    sources: Sources,
    timeout_s: float,
    mark: str | None = None,
    fence: Callable[[Connection], None] = lambda connection: None,
) -> Counts:
    """Runs the query of a batch and replaces the stored values of the batch; after a ModelFailed the old ones stay.

    `fence` is called at the end of the transaction that replaces the values. It raises an error, and so rolls the
    transaction back, if the recovery has closed this execution meanwhile.
    """
    with closing(_Spool()) as spool:
        try:
            with sources.read_transaction(model.source, timeout_s, mark) as transaction:
                counts = _read_into_spool(transaction, model, op_time, spool)
        except SourceError as error:
            raise ModelFailed(str(error), source_is_down=error.is_transient) from None

        def replace(connection: Connection) -> None:
            _replace_values(connection, model, op_time, spool)
            fence(connection)

        transact(engine, replace)
    return counts


class _Spool:
    """The rows of the query in a temporary SQLite file, unique by their dimensions. Closing it deletes the file."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = OFF",
            f"PRAGMA cache_size = -{SPOOL_CACHE_KIB}",
            "CREATE TABLE spooled (dims_hash BLOB UNIQUE, dims TEXT, kpi_values TEXT)",
            "BEGIN",
        ):
            self._connection.execute(statement)

    def add(self, dims: str, values: Sequence[Decimal | None]) -> bool:
        """Adds a row; False if there is a row with these dimensions already."""
        texts = [None if value is None else decimal_text(value) for value in values]
        row = (bytes.fromhex(sha256_hex(dims)), dims, json.dumps(texts))
        return self._connection.execute("INSERT OR IGNORE INTO spooled VALUES (?, ?, ?)", row).rowcount == 1

    def rows(self) -> Iterator[tuple[str, dict[str, Any], list[str | None]]]:
        for dims_hash, dims, values in self._connection.execute("SELECT * FROM spooled"):
            yield dims_hash.hex(), json.loads(dims), json.loads(values)

    def close(self) -> None:
        self._connection.close()


def _read_into_spool(transaction: ReadTransaction, model: Model, op_time: str, spool: _Spool) -> Counts:
    columns, rows = transaction.rows(render_query(model, transaction.dialect, op_time, transaction.reach))
    kpi_ids = [kpi.kpi_id for kpi in model.kpis]
    dimension_at = _positions(columns, model.dimensions)
    kpi_at = _positions(columns, kpi_ids)
    computed = stored = 0
    totals: dict[str, Decimal] = {}
    for row in rows:
        dims = {name: _json_dimension(row[at]) for name, at in zip(model.dimensions, dimension_at, strict=True)}
        values = [_kpi_number(row[at], kpi_id, dims) for kpi_id, at in zip(kpi_ids, kpi_at, strict=True)]
        if not spool.add(canonical_json(dims), values):
            raise _model_failed(f"the query gives more than one row for {_describe_dims(dims)}")
        computed += 1
        for kpi_id, value in zip(kpi_ids, values, strict=True):
            if value is not None:
                stored += 1
                totals[kpi_id] = totals.get(kpi_id, Decimal(0)) + value
    return Counts(computed, stored, meaningful_totals(model, totals, computed))


def _positions(columns: Sequence[str], names: Sequence[str]) -> list[int]:
    """The positions of the named columns, compared without case if no column has exactly the name.

    A database may return a column as its table spells it, in another case than the query.
    """
    positions = []
    for name in names:
        at = [i for i, column in enumerate(columns) if column == name]
        at = at or [i for i, column in enumerate(columns) if column.lower() == name.lower()]
        if len(at) != 1:
            raise _model_failed(f"the query gives {len(at) or 'no'} columns {name}; it gives {', '.join(columns)}")
        positions.append(at[0])
    return positions


def _json_dimension(value: Any) -> Any:
    """The value of a dimension in JSON; a value that JSON cannot hold exactly becomes text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, date | datetime | time_of_day):
        return value.isoformat()
    if isinstance(value, set | frozenset):  # MySQL's SET
        return ",".join(sorted(value))
    if isinstance(value, dict | list):  # PostgreSQL's JSON and arrays
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _kpi_number(value: Any, kpi_id: str, dims: Mapping[str, Any]) -> Decimal | None:
    if value is None:
        return None
    try:
        return exact_number(value)
    except ValueError as error:
        raise _model_failed(f"{kpi_id} of {_describe_dims(dims)} {error}") from None


def _describe_dims(dims: Mapping[str, Any]) -> str:
    return canonical_json(dims) if dims else "the whole batch"


def _model_failed(message: str) -> ModelFailed:
    return ModelFailed(message[:MAX_MESSAGE])


def _replace_values(connection: Connection, model: Model, op_time: str, spool: _Spool) -> None:
    """Replaces all stored values of the batch in the caller's transaction."""
    table = metrics_kpi_value
    kpi_ids = [kpi.kpi_id for kpi in model.kpis]
    # Two statements, because each uses an index of its own. The first also deletes values of KPIs that were taken from
    # the model, the second those of KPIs that belonged to another model before.
    connection.execute(delete(table).where(table.c.model_id == model.model_id, table.c.op_time == op_time))
    connection.execute(delete(table).where(table.c.kpi_id.in_(kpi_ids), table.c.op_time == op_time))
    values = (
        {
            "kpi_id": kpi_id,
            "op_time": op_time,
            "model_id": model.model_id,
            "dims": dims,
            "dims_hash": dims_hash,
            "kpi_value": value,
            "model_version": model.version,
        }
        for dims_hash, dims, row in spool.rows()
        for kpi_id, value in zip(kpi_ids, row, strict=True)
        if value is not None
    )
    for batch in chunks(values, WRITTEN_ROWS):
        upsert(connection, table, batch, key=["kpi_id", "op_time", "dims_hash"])

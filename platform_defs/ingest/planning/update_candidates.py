"""Which stored records an update fetches again: stale, of older expressions, or asked for by somebody."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Engine, Select, and_, false, func, or_, select

from platform_defs.ingest.planning.signals import OPEN
from platform_defs.ingest.planning.slices import SliceDraft, id_slice
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.spec.snapshot import mapping_hash
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_record, ing_signal

# What one plan of a bucket takes; the rest is due again the next time.
MAX_CANDIDATES = 50_000


@dataclass(frozen=True)
class DueRecords:
    """The records of a bucket that an update should fetch again."""

    # those that somebody asked for first, then the longest unchecked
    ids: Sequence[str]
    # how many of them somebody asked for
    signalled: int
    # False: more records are due than one plan takes
    is_all: bool

    @property
    def counts(self) -> dict[str, int]:
        return {"signalled": self.signalled, "staleOrOutdated": len(self.ids) - self.signalled, "isAll": self.is_all}


def due_records(engine: Engine, spec: Spec, bucket: int, now: datetime, *, limit: int = MAX_CANDIDATES) -> DueRecords:
    """The records of the bucket that an update should fetch now, at most `limit`."""

    def look(connection: Connection) -> DueRecords:
        asked = list(connection.scalars(_signalled_ids(spec, bucket, limit + 1)))
        stale = list(connection.scalars(_stale_or_outdated_ids(spec, bucket, now, limit + 1)))
        ids = list(dict.fromkeys([*asked, *stale]))
        return DueRecords(ids[:limit], min(limit, len(asked)), is_all=len(ids) <= limit)

    return read(engine, look)


def id_slices(spec: Spec, bucket: int, ids: Sequence[str]) -> list[SliceDraft]:
    size = spec.batching.max_ids_per_slice
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    return [id_slice(spec, bucket, part, number=number) for number, part in enumerate(parts)]


def _signalled_ids(spec: Spec, bucket: int, limit: int) -> Select[str]:
    table = ing_signal.c
    return (
        select(table.provider_id)
        .where(
            table.provenance_code == spec.provenance_code,
            table.endpoint_name == spec.endpoint_name,
            table.status_code == OPEN,
            table.id_number % spec.update_buckets == bucket,
        )
        .order_by(table.id)
        .limit(limit)
    )


def _is_other(expr_hash: ColumnElement[str | None], spec: Spec) -> ColumnElement[bool]:
    return or_(expr_hash.is_(None), expr_hash != mapping_hash(spec))


def _stale_or_outdated_ids(spec: Spec, bucket: int, now: datetime, limit: int) -> Select[str]:
    table = ing_record.c
    checked = func.coalesce(table.refresh_checked_at, table.modified_at)
    stale: ColumnElement[bool] = false() if spec.stale_after is None else checked < now - spec.stale_after
    # A record that its source refuses, no longer has, or has in an older version keeps its older expressions. To ask
    # with the same ones again would change nothing, unless others have stored it since then.
    is_unchecked = or_(_is_other(table.checked_expr_hash, spec), table.refresh_checked_at < table.modified_at)
    older = and_(_is_other(table.expr_hash, spec), is_unchecked)
    return (
        select(table.provider_id)
        .where(
            and_(table.provenance_code == spec.provenance_code, table.endpoint_name == spec.endpoint_name),
            table.id_number % spec.update_buckets == bucket,
            or_(stale, older),
        )
        .order_by(table.refresh_checked_at, table.id)
        .limit(limit)
    )

"""Commits a batch: records, outbox, quarantine and the batch's own row, all of them or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Connection, and_, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import BatchStatus, Operation
from platform_defs.ingest.execution.outbox import publish
from platform_defs.ingest.fetching.pages import PagePosition
from platform_defs.ingest.fetching.reading import Record, Rejection
from platform_defs.ingest.identity import id_number
from platform_defs.ingest.planning.signals import close_signals
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.leases import LeasedTask, fence
from platform_defs.store.driver import Prepared
from platform_defs.store.engine import dump_json
from platform_defs.store.tables.ingest import ing_record, ing_record_quarantine, ing_task_run_batch
from platform_defs.store.upsert import Upsert, upsert

# How many of the items that were set aside the stats of a batch name, and with how many characters each.
MOST_NAMED, LONGEST_REASON = 5, 300
UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_record = ing_record.c
# compiled once: they run for every page
_STORED = Prepared(
    select(_record.provider_id, _record.updated_at, _record.expr_hash)
    .where(
        _record.provenance_code == bindparam("source"),
        _record.endpoint_name == bindparam("endpoint"),
        _record.provider_id.in_(bindparam("ids", expanding=True)),
    )
    .order_by(_record.provider_id)
    .with_for_update()
)
_BATCH_COLUMNS = (
    *("run_id", "task_id", "slice_id", "plan_id", "expr_hash", "provenance_code", "operation_code", "batch_no"),
    *("page_no", "page_size", "before_token", "before_token_hash", "after_token", "next_url"),
    *("request_digest", "response_digest", "idempotent_key", "record_count", "status_code", "committed_at", "stats"),
)
_ADD_BATCH = Prepared(insert(ing_task_run_batch).values({name: bindparam(name) for name in _BATCH_COLUMNS}))
_STORE_RECORDS = Upsert(
    ing_record,
    key=("provenance_code", "endpoint_name", "provider_id"),
    update=("updated_at", "record", "expr_hash", "run_id", "batch_id", "modified_at"),
    # asked once more: a record that did not exist a moment ago may have been stored by another slice meanwhile
    when=lambda incoming: incoming.updated_at >= _record.updated_at,
)


@dataclass(frozen=True)
class Batch:
    """A page that was fetched and read, ready to be committed."""

    batch_no: int
    position: PagePosition
    # where the slice goes on after this batch; None at its end
    following: PagePosition | None
    # how often the slice was begun from its start: a token that expired begins it again
    pass_no: int
    items: int
    records: Sequence[Record]
    rejections: Sequence[Rejection] = ()
    # records that the client-side filter left out, because they belong to another window
    outside: int = 0
    # ids that an update asked for: they count as checked whether or not the source returned them
    asked_ids: Sequence[str] = ()
    request_digest: Mapping[str, Any] = field(default_factory=dict)
    response_digest: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    total: int | None = None
    # items up to and with this batch since the slice was last begun from its start
    items_of_pass: int = 0
    # a hash of the ids of its items
    page_hash: str | None = None
    # why its slice cannot become complete, if that is known by now
    incomplete: str | None = None


@dataclass(frozen=True)
class ChangeCounts:
    """What a batch changed; a record that was stored already, in the same or a newer version, is skipped."""

    inserted: int
    updated: int
    skipped: int


@dataclass(frozen=True)
class CommittedBatch:
    batch_id: int
    counts: ChangeCounts
    # since when somebody wants the batch's task stopped
    cancel_requested_at: datetime | None = None


def commit_batch(
    connection: Connection,
    spec: Spec,
    leased: LeasedTask,
    batch: Batch,
    *,
    mapping: str,
    asked_at: datetime,
    now: datetime,
) -> CommittedBatch:
    """Writes the batch in the caller's transaction, which may run twice; raises LeaseLost if the task is not ours.

    `mapping` is the mapping hash that the records get, `asked_at` when the page was asked for.
    """
    task = fence(connection, leased)
    before = _stored_versions(connection, spec, sorted({record.provider_id for record in batch.records}))
    newest = _newest_of_each([_with_time(record, before) for record in batch.records])
    changed = {
        provider_id: record
        for provider_id, record in newest.items()
        if _replaces(record, before.get(provider_id), mapping)
    }
    inserted = sum(provider_id not in before for provider_id in changed)
    counts = ChangeCounts(inserted, len(changed) - inserted, len(batch.records) - len(changed))
    try:
        batch_id = _insert_batch(connection, spec, leased, batch, counts, task.expr_hash, now)
    except IntegrityError:
        # The transaction is repeated, because its commit got no answer, but it had been committed: the row is there.
        return replace(_committed_before(connection, leased, batch), cancel_requested_at=task.cancel_requested_at)
    _store(connection, spec, changed, leased.run_id, batch_id, mapping, now)
    publish(connection, spec, changed, before, leased.run_id, batch_id, mapping, now)
    _set_aside(connection, spec, leased, batch, batch_id, task)
    if spec.operation is Operation.UPDATE:
        _note_checked(connection, spec, batch.asked_ids, mapping, now)
        close_signals(connection, spec.provenance_code, spec.endpoint_name, batch.asked_ids, asked_at)
    return CommittedBatch(batch_id, counts, task.cancel_requested_at)


def _committed_before(connection: Connection, leased: LeasedTask, batch: Batch) -> CommittedBatch:
    """The batch as the first of two identical transactions has committed it."""
    table = ing_task_run_batch.c
    query = select(table.id, table.stats).where(table.idempotent_key == _keys(leased, batch)[1])
    found = connection.execute(query).one()
    return CommittedBatch(found.id, ChangeCounts(*(found.stats[each.name] for each in fields(ChangeCounts))))


def _keys(leased: LeasedTask, batch: Batch) -> tuple[str, str]:
    """The page's place in its pass over the slice, and the key by which no later attempt commits the page again."""
    place = canonical_hash([batch.pass_no, batch.position.hash()])
    return place, canonical_hash([leased.task_id, place])


def _insert_batch(
    connection: Connection,
    spec: Spec,
    leased: LeasedTask,
    batch: Batch,
    counts: ChangeCounts,
    expr_hash: str,
    now: datetime,
) -> int:
    position, following = batch.position, batch.following
    place, key = _keys(leased, batch)
    row = {
        "run_id": leased.run_id,
        "task_id": leased.task_id,
        "slice_id": leased.slice_id,
        "plan_id": leased.plan_id,
        "expr_hash": expr_hash,
        "provenance_code": spec.provenance_code,
        "operation_code": spec.operation,
        "batch_no": batch.batch_no,
        "page_no": position.page,
        "page_size": spec.pagination.page_size,
        "before_token": position.token or position.url,
        "before_token_hash": place,
        "after_token": None if following is None else following.token,
        "next_url": None if following is None else following.url,
        "request_digest": dict(batch.request_digest),
        "response_digest": dict(batch.response_digest),
        "idempotent_key": key,
        "record_count": len(batch.records),
        "status_code": BatchStatus.SUCCEEDED,
        "committed_at": now,
        "stats": _stats(batch, counts),
    }
    return int(_ADD_BATCH.run(connection, row).lastrowid or 0)


def _with_time(record: Record, before: Mapping[str, tuple[datetime, str | None]]) -> Record:
    """Gives a record without a time that of the stored one, or if it is new the oldest time there is.

    Such a record was fetched by its id from a source whose details hold no time. With a later time, the next harvested
    version of it would look older and not be stored.
    """
    if record.updated_at is not None:
        return record
    stored = before.get(record.provider_id)
    return record._replace(updated_at=UNKNOWN_TIME if stored is None else stored[0])


def _newest_of_each(records: Sequence[Record]) -> dict[str, Record]:
    """A page may name a record twice: the newer one counts."""
    newest: dict[str, Record] = {}
    for record in records:
        known = newest.get(record.provider_id)
        if known is None or _time(record) > _time(known):
            newest[record.provider_id] = record
    return newest


def _time(record: Record) -> datetime:
    assert record.updated_at is not None, "records have their time when they are committed"
    return record.updated_at


def _stored_versions(connection: Connection, spec: Spec, ids: Sequence[str]) -> dict[str, tuple[datetime, str | None]]:
    """Locked, so that what is counted and published as a change is one."""
    if not ids:
        return {}
    named = {"source": spec.provenance_code, "endpoint": spec.endpoint_name, "ids": ids}
    rows = _STORED.run(connection, named).rows
    return {provider_id: (updated_at, expr_hash) for provider_id, updated_at, expr_hash in rows}


def _replaces(record: Record, stored: tuple[datetime, str | None] | None, mapping: str) -> bool:
    """A newer record replaces the stored one; an equally old one only where other expressions made it."""
    if stored is None:
        return True
    updated_at, expr_hash = stored
    return _time(record) > updated_at or (_time(record) == updated_at and expr_hash != mapping)


def _store(
    connection: Connection,
    spec: Spec,
    changed: Mapping[str, Record],
    run_id: int,
    batch_id: int,
    mapping: str,
    now: datetime,
) -> None:
    # in this order on every executor, so that two of them do not wait for each other
    ids = sorted(changed)
    records = [changed[provider_id] for provider_id in ids]
    _STORE_RECORDS.run_columns(
        connection,
        {
            "provider_id": ids,
            "id_number": [id_number(provider_id) for provider_id in ids],
            "updated_at": [record.updated_at for record in records],
            "record": [_json_text(record.document) for record in records],
        },
        same={
            "provenance_code": spec.provenance_code,
            "endpoint_name": spec.endpoint_name,
            "expr_hash": mapping,
            "run_id": run_id,
            "batch_id": batch_id,
            "created_at": now,
            "modified_at": now,
        },
        ready=("record",),
    )


def _json_text(document: Any) -> str:
    """The document as it is stored; one that the fast encoder does not know is left to the store's own."""
    try:
        return orjson.dumps(document).decode()
    except TypeError:
        return dump_json(document)


def _set_aside(connection: Connection, spec: Spec, leased: LeasedTask, batch: Batch, batch_id: int, task: Any) -> None:
    rows = [
        {
            "provenance_code": spec.provenance_code,
            "endpoint_name": spec.endpoint_name,
            "operation_code": spec.operation,
            "provider_id": rejection.provider_id,
            "reason_code": rejection.reason_code,
            "field_path": rejection.field_path[:512],
            "reason": rejection.reason,
            "request_digest": dict(batch.request_digest),
            "response_fragment": rejection.fragment,
            "schedule_instance_id": task.schedule_instance_id,
            "plan_id": leased.plan_id,
            "slice_id": leased.slice_id,
            "task_id": leased.task_id,
            "run_id": leased.run_id,
            "batch_id": batch_id,
            "expr_hash": task.expr_hash,
            # the same bad item fetched again is one row
            "idempotent_key": canonical_hash(
                [
                    spec.provenance_code,
                    spec.endpoint_name,
                    rejection.provider_id,
                    rejection.reason_code,
                    rejection.fragment,
                ]
            ),
        }
        for rejection in batch.rejections
    ]
    upsert(connection, ing_record_quarantine, rows, key=["idempotent_key"], update="nothing")


def _some_reasons(rejections: Sequence[Rejection]) -> list[str]:
    """For a person who looks at the window: the table has all of them, but under the batch that saw each first."""
    named = [f"{each.provider_id or 'an item without an id'}: {each.reason}" for each in rejections[:MOST_NAMED]]
    return [text[:LONGEST_REASON] for text in named]


def _note_checked(connection: Connection, spec: Spec, ids: Sequence[str], mapping: str, now: datetime) -> None:
    """Notes it also of records that the source refused, no longer has, or gave in an older version.

    They are not stored anew, so `modified_at` stays: by it a later harvest is told from what was there when it was
    checked.
    """
    if ids:
        mine = and_(_record.provenance_code == spec.provenance_code, _record.endpoint_name == spec.endpoint_name)
        asked = and_(mine, _record.provider_id.in_(ids))
        values = {"refresh_checked_at": now, "checked_expr_hash": mapping, "modified_at": _record.modified_at}
        connection.execute(update(ing_record).where(asked).values(values))


def _stats(batch: Batch, counts: ChangeCounts) -> dict[str, Any]:
    following = batch.following
    return {
        "itemsCount": batch.items,
        "itemsOfPass": batch.items_of_pass,
        "pageHash": batch.page_hash,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "skipped": counts.skipped,
        "outside": batch.outside,
        "failed": len(batch.rejections),
        **batch.counts,
        "total": batch.total,
        "pass": batch.pass_no,
        "hasNext": following is not None,
        "nextHint": None if following is None else following.as_json(),
        **({} if batch.incomplete is None else {"incomplete": batch.incomplete}),
        **({"setAside": _some_reasons(batch.rejections)} if batch.rejections else {}),
    }

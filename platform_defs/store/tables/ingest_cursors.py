"""Tables of ingest's cursors: how far each operation has come, and every event that moved it there."""

from typing import Any

from sqlalchemy import Column, Index, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.tables.ingest_columns import HASH, operation, provenance, reference, version, window
from platform_defs.store.types import Instant, Json, LongText, Str, WideNumber


def _cursor_identity() -> list[Column[Any]]:
    return [
        provenance(),
        operation(),
        Column("cursor_key", Str(128), nullable=False),
        Column("namespace_scope_code", Str(32), nullable=False),
        Column("namespace_key", HASH, nullable=False),
    ]


ing_cursor = Table(
    "ing_cursor",
    metadata,
    id_column(),
    *_cursor_identity(),
    Column("cursor_type_code", Str(32), nullable=False),
    Column("cursor_value", LongText, nullable=False),
    Column("observed_max_value", LongText),
    Column("normalized_instant", Instant),
    Column("normalized_numeric", WideNumber),
    reference("schedule_instance_id"),
    reference("plan_id"),
    reference("slice_id"),
    reference("task_id"),
    reference("last_run_id"),
    reference("last_batch_id"),
    Column("expr_hash", HASH),
    version(),
    created_at(),
    updated_at(),
    UniqueConstraint(
        "provenance_code",
        "operation_code",
        "cursor_key",
        "namespace_scope_code",
        "namespace_key",
        name="uk_cursor_ns",
    ),
    Index("idx_cursor_time", "provenance_code", "operation_code", "normalized_instant"),
    Index("idx_cursor_id", "provenance_code", "operation_code", "normalized_numeric"),
    Index("idx_cursor_sort_time", "cursor_type_code", "normalized_instant"),
    Index("idx_cursor_sort_id", "cursor_type_code", "normalized_numeric"),
)

ing_cursor_event = Table(
    "ing_cursor_event",
    metadata,
    id_column(),
    *_cursor_identity(),
    Column("cursor_type_code", Str(32), nullable=False),
    Column("direction_code", Str(32), nullable=False),
    Column("prev_value", LongText),
    Column("new_value", LongText, nullable=False),
    Column("prev_instant", Instant),
    Column("new_instant", Instant),
    Column("prev_numeric", WideNumber),
    Column("new_numeric", WideNumber),
    Column("observed_max_value", LongText),
    *window(),
    Column("idempotent_key", HASH, nullable=False),
    reference("schedule_instance_id"),
    reference("plan_id"),
    reference("slice_id"),
    reference("task_id"),
    reference("run_id"),
    reference("batch_id"),
    Column("expr_hash", HASH),
    Column("record_remarks", Json),
    created_at(),
    updated_at(),
    UniqueConstraint("idempotent_key", name="uk_cur_evt_idem"),
    Index(
        "idx_cur_evt_timeline",
        "provenance_code",
        "operation_code",
        "namespace_scope_code",
        "namespace_key",
        "created_at",
    ),
    Index("idx_cur_evt_instant", "provenance_code", "operation_code", "new_instant"),
    Index("idx_cur_evt_numeric", "provenance_code", "operation_code", "new_numeric"),
    Index("idx_cur_evt_lineage", "schedule_instance_id", "plan_id", "slice_id", "task_id", "run_id"),
)

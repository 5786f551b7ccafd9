"""Tables of the ingest: schedule instance, plan, slice, task, run, batch, cursor, records and the shared rate gate."""

from typing import Any

from sqlalchemy import BigInteger, Column, Double, Index, Integer, PrimaryKeyConstraint, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, now, updated_at
from platform_defs.store.types import Fixed, Instant, Json, LongText, Str, WideNumber, utc_now

CODE = Str(64)
HASH = Fixed(64)


def _provenance() -> Column[str]:
    return Column("provenance_code", CODE, nullable=False)


def _operation() -> Column[str]:
    return Column("operation_code", Str(32), nullable=False)


def _status(first: str) -> Column[str]:
    return Column("status_code", Str(32), nullable=False, server_default=first)


def _version() -> Column[int]:
    return Column("version", BigInteger, nullable=False, server_default="0")


def _ref(name: str, *, nullable: bool = True) -> Column[int]:
    # the seeds build no physical foreign keys between these tables: archiving moves each of them on its own
    return Column(name, BigInteger, nullable=nullable)


def _window() -> list[Column[Any]]:
    return [Column("window_from", Instant), Column("window_to", Instant)]


def _cursor_identity() -> list[Column[Any]]:
    return [
        _provenance(),
        _operation(),
        Column("cursor_key", Str(128), nullable=False),
        Column("namespace_scope_code", Str(32), nullable=False),
        Column("namespace_key", HASH, nullable=False),
    ]


ing_schedule_instance = Table(
    "ing_schedule_instance",
    metadata,
    id_column(),
    Column("scheduler_code", CODE, nullable=False),
    Column("scheduler_job_id", CODE),
    Column("scheduler_log_id", CODE),
    Column("trigger_type_code", Str(32), nullable=False),
    Column("triggered_at", Instant, nullable=False),
    Column("trigger_params", Json),
    _provenance(),
    Column("endpoint_name", CODE),
    Column("operation_code", Str(32)),
    Column("expr_proto_hash", HASH),
    Column("expr_proto_snapshot", Json),
    Column("record_remarks", Json),
    created_at(),
    updated_at(),
    Index("idx_sched_src", "scheduler_code", "scheduler_job_id", "scheduler_log_id"),
)

ing_plan = Table(
    "ing_plan",
    metadata,
    id_column(),
    _ref("schedule_instance_id", nullable=False),
    Column("plan_key", Str(128), nullable=False),
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    _operation(),
    Column("expr_proto_hash", HASH, nullable=False),
    Column("expr_proto_snapshot", Json),
    Column("provenance_config_snapshot", Json),
    Column("provenance_config_hash", HASH),
    Column("spec_fingerprint", HASH),
    Column("slice_strategy_code", Str(32), nullable=False),
    Column("slice_params", Json),
    *_window(),
    _status("DRAFT"),
    Column("record_remarks", Json),
    _version(),
    created_at(),
    updated_at(),
    UniqueConstraint("plan_key", name="uk_plan_key"),
    # also serves as idx_plan_prov_op(provenance_code, operation_code), its prefix
    Index("idx_plan_src_op_time", "provenance_code", "operation_code", "created_at"),
    Index("idx_plan_expr", "expr_proto_hash"),
    # the windows of an endpoint: what is complete, what is open
    Index("idx_plan_window", "provenance_code", "endpoint_name", "operation_code", "window_from"),
)

ing_plan_slice = Table(
    "ing_plan_slice",
    metadata,
    id_column(),
    _ref("plan_id", nullable=False),
    _provenance(),
    Column("slice_no", Integer, nullable=False),
    Column("slice_signature_hash", HASH, nullable=False),
    Column("slice_spec", Json, nullable=False),
    Column("expr_hash", HASH, nullable=False),
    Column("expr_snapshot", Json),
    _status("PENDING"),
    created_at(),
    updated_at(),
    UniqueConstraint("plan_id", "slice_no", name="uk_slice_no"),
    UniqueConstraint("plan_id", "slice_signature_hash", name="uk_slice_sig"),
    Index("idx_slice_status", "plan_id", "status_code"),
    Index("idx_slice_prov_status", "provenance_code", "status_code"),
)

ing_task = Table(
    "ing_task",
    metadata,
    id_column(),
    _ref("schedule_instance_id", nullable=False),
    _ref("plan_id", nullable=False),
    _ref("slice_id", nullable=False),
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    _operation(),
    _ref("credential_id"),
    Column("params", Json),
    Column("idempotent_key", HASH, nullable=False),
    Column("expr_hash", HASH, nullable=False),
    Column("priority", Integer, nullable=False, server_default="5"),
    Column("lease_owner", Str(128)),
    Column("leased_until", Instant),
    Column("lease_count", Integer, nullable=False, server_default="0"),
    Column("last_heartbeat_at", Instant),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("last_error_code", CODE),
    Column("last_error_msg", LongText),
    _status("QUEUED"),
    Column("scheduled_at", Instant, nullable=False, server_default=utc_now()),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("correlation_id", Str(128)),
    _version(),
    created_at(),
    updated_at(),
    UniqueConstraint("idempotent_key", name="uk_task_idem"),
    UniqueConstraint("slice_id", name="uk_task_slice"),  # one slice, one task; also serves as idx_task_slice
    Index("idx_task_queue", "status_code", "leased_until", "priority", "scheduled_at", "id"),
    Index("idx_task_pick", "status_code", "priority", "scheduled_at", "provenance_code", "operation_code"),
    Index("idx_task_src_op", "provenance_code", "operation_code", "status_code"),
    Index("idx_task_cred", "credential_id"),
    Index("idx_task_plan", "plan_id", "status_code"),  # a partition drains the tasks of its own plan
)

ing_task_run = Table(
    "ing_task_run",
    metadata,
    id_column(),
    _ref("task_id", nullable=False),
    Column("attempt_no", Integer, nullable=False),
    _provenance(),
    _operation(),
    _status("PLANNED"),
    Column("checkpoint", Json),
    Column("stats", Json),
    Column("error", LongText),
    *_window(),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("last_heartbeat", Instant),
    Column("correlation_id", Str(128)),
    created_at(),
    updated_at(),
    UniqueConstraint("task_id", "attempt_no", name="uk_run_attempt"),
    # also serves as idx_run_task_status(task_id, status_code), its prefix
    Index("idx_run_task", "task_id", "status_code", "created_at"),
    Index("idx_run_prov_op_status", "provenance_code", "operation_code", "status_code"),
)

ing_task_run_batch = Table(
    "ing_task_run_batch",
    metadata,
    id_column(),
    _ref("run_id", nullable=False),
    _ref("task_id"),
    _ref("slice_id"),
    _ref("plan_id"),
    Column("expr_hash", HASH),
    _provenance(),
    _operation(),
    Column("batch_no", Integer, nullable=False),
    Column("page_no", Integer),
    Column("page_size", Integer),
    # a token or, with URL pagination, the page's URL: too long for a key, hence the hash beside it
    Column("before_token", LongText),
    Column("before_token_hash", HASH),
    Column("after_token", LongText),
    Column("next_url", LongText),
    *_window(),
    Column("request_digest", Json),
    Column("response_digest", Json),
    Column("idempotent_key", HASH, nullable=False),
    Column("record_count", Integer, nullable=False, server_default="0"),
    _status("PLANNED"),
    Column("committed_at", Instant),
    Column("error", LongText),
    Column("stats", Json),
    created_at(),
    updated_at(),
    UniqueConstraint("run_id", "batch_no", name="uk_run_batch_no"),
    UniqueConstraint("run_id", "before_token_hash", name="uk_run_before_tok"),
    UniqueConstraint("idempotent_key", name="uk_batch_idem"),
    Index("idx_batch_time", "run_id", "created_at"),
    Index("idx_batch_status", "run_id", "status_code"),
    # a task resumes after its last batch, and a plan is summed up over all of its batches
    Index("idx_batch_task", "task_id", "batch_no"),
    Index("idx_batch_plan", "plan_id", "committed_at"),
    Index("idx_batch_prov_op_status", "provenance_code", "operation_code", "status_code", "committed_at"),
)

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
    _ref("schedule_instance_id"),
    _ref("plan_id"),
    _ref("slice_id"),
    _ref("task_id"),
    _ref("last_run_id"),
    _ref("last_batch_id"),
    Column("expr_hash", HASH),
    _version(),
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
    *_window(),
    Column("idempotent_key", HASH, nullable=False),
    _ref("schedule_instance_id"),
    _ref("plan_id"),
    _ref("slice_id"),
    _ref("task_id"),
    _ref("run_id"),
    _ref("batch_id"),
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

ing_record = Table(
    "ing_record",
    metadata,
    id_column(),
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("provider_id", Str(512), nullable=False),
    # the record's own time, by which a newer version replaces an older one; the row's times are the two below
    Column("updated_at", Instant, nullable=False),
    Column("record", Json, nullable=False),
    Column("expr_hash", HASH),
    _ref("run_id"),
    _ref("batch_id"),
    Column("refresh_checked_at", Instant),
    # a number that is the same for the same provider_id everywhere: update buckets are its remainders
    Column("id_number", BigInteger, nullable=False, server_default="0"),
    created_at(),
    Column("modified_at", Instant, nullable=False, server_default=utc_now(), onupdate=now),
    UniqueConstraint("provenance_code", "endpoint_name", "provider_id", name="uk_record_provider_id"),
    Index("idx_record_refresh", "provenance_code", "endpoint_name", "refresh_checked_at"),
)

ing_outbox = Table(
    "ing_outbox",
    metadata,
    id_column(),
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("provider_id", Str(512), nullable=False),
    Column("event_type", Str(32), nullable=False),
    Column("payload", Json, nullable=False),
    # the record's key and version: a batch that is committed twice publishes once
    Column("idempotent_key", HASH, nullable=False),
    _ref("run_id"),
    _ref("batch_id"),
    created_at(),
    Column("published_at", Instant),
    UniqueConstraint("idempotent_key", name="uk_outbox_idem"),
    Index("idx_outbox_unpublished", "published_at", "id"),
)

ing_signal = Table(
    "ing_signal",
    metadata,
    id_column(),
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("provider_id", Str(512), nullable=False),
    Column("id_number", BigInteger, nullable=False, server_default="0"),
    Column("reason", Str(512)),
    # who asked for the record: an API key, a command, the quarantine
    Column("requested_by", Str(128), nullable=False),
    Column("requested_at", Instant, nullable=False),
    _status("OPEN"),
    _ref("plan_id"),
    created_at(),
    updated_at(),
    UniqueConstraint("provenance_code", "endpoint_name", "provider_id", name="uk_signal_provider_id"),
    Index("idx_signal_status", "provenance_code", "endpoint_name", "status_code", "id"),
)

ing_endpoint_block = Table(
    "ing_endpoint_block",
    metadata,
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("reason", LongText, nullable=False),
    Column("error_code", CODE),
    _ref("task_id"),
    Column("blocked_at", Instant, nullable=False),
    PrimaryKeyConstraint("provenance_code", "endpoint_name"),
)

ing_record_quarantine = Table(
    "ing_record_quarantine",
    metadata,
    id_column(),
    _provenance(),
    Column("endpoint_name", CODE, nullable=False),
    _operation(),
    Column("provider_id", Str(512)),
    Column("reason_code", CODE, nullable=False),
    Column("field_path", Str(512)),
    Column("reason", LongText, nullable=False),
    Column("request_digest", Json),
    Column("response_fragment", Json),
    Column("expr_stack", Json),
    _ref("schedule_instance_id"),
    _ref("plan_id"),
    _ref("slice_id"),
    _ref("task_id"),
    _ref("run_id"),
    _ref("batch_id"),
    Column("expr_hash", HASH),
    Column("idempotent_key", HASH, nullable=False),
    _status("OPEN"),
    created_at(),
    updated_at(),
    UniqueConstraint("idempotent_key", name="uk_quarantine_idem"),
    Index("idx_quarantine_status", "provenance_code", "endpoint_name", "status_code", "created_at"),
    Index("idx_quarantine_batch", "run_id", "batch_id"),
)

ing_rate_gate = Table(
    "ing_rate_gate",
    metadata,
    id_column(),
    Column("rate_key", Str(255), nullable=False),
    _provenance(),
    Column("endpoint_name", CODE),
    _ref("credential_id"),
    Column("tokens", Double, nullable=False),
    Column("refill_rate", Double, nullable=False),
    Column("refilled_at", Instant, nullable=False),
    Column("raised_at", Instant),
    Column("cooldown_until", Instant),
    Column("limit_remaining", BigInteger),
    Column("window_reset_at", Instant),
    _version(),
    created_at(),
    updated_at(),
    UniqueConstraint("rate_key", name="uk_rate_gate_key"),
)

ing_rate_quota = Table(
    "ing_rate_quota",
    metadata,
    id_column(),
    Column("rate_key", Str(255), nullable=False),
    Column("window_code", Str(16), nullable=False),
    Column("window_from", Instant, nullable=False),
    Column("quota_limit", BigInteger, nullable=False),
    Column("reserved_count", BigInteger, nullable=False, server_default="0"),
    Column("used_count", BigInteger, nullable=False, server_default="0"),
    created_at(),
    updated_at(),
    UniqueConstraint("rate_key", "window_code", "window_from", name="uk_rate_quota_window"),
)

"""Tables of ingest: schedule instance, plan, slice, task, run, batch and records."""

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, now, updated_at
from platform_defs.store.tables.ingest_columns import (
    CODE,
    HASH,
    operation,
    provenance,
    reference,
    status,
    version,
    window,
)
from platform_defs.store.types import Instant, Json, LongText, Str, utc_now

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
    provenance(),
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
    reference("schedule_instance_id", nullable=False),
    Column("plan_key", Str(128), nullable=False),
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    operation(),
    Column("expr_proto_hash", HASH, nullable=False),
    Column("expr_proto_snapshot", Json),
    Column("provenance_config_snapshot", Json),
    Column("provenance_config_hash", HASH),
    Column("spec_fingerprint", HASH),
    Column("slice_strategy_code", Str(32), nullable=False),
    Column("slice_params", Json),
    *window(),
    status("DRAFT"),
    Column("record_remarks", Json),
    # when Dagster was told that the plan's partition is materialised
    Column("reported_at", Instant),
    version(),
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
    reference("plan_id", nullable=False),
    provenance(),
    Column("slice_no", Integer, nullable=False),
    Column("slice_signature_hash", HASH, nullable=False),
    Column("slice_spec", Json, nullable=False),
    Column("expr_hash", HASH, nullable=False),
    Column("expr_snapshot", Json),
    status("PENDING"),
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
    reference("schedule_instance_id", nullable=False),
    reference("plan_id", nullable=False),
    reference("slice_id", nullable=False),
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    operation(),
    reference("credential_id"),
    Column("params", Json),
    Column("idempotent_key", HASH, nullable=False),
    Column("expr_hash", HASH, nullable=False),
    Column("priority", Integer, nullable=False, server_default="5"),
    # tasks of its partition that run at a time, as the Registry had it when the task was planned
    Column("max_concurrent", Integer, nullable=False, server_default="4"),
    Column("lease_owner", Str(128)),
    Column("leased_until", Instant),
    Column("lease_count", Integer, nullable=False, server_default="0"),
    Column("last_heartbeat_at", Instant),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("last_error_code", CODE),
    Column("last_error_msg", LongText),
    status("QUEUED"),
    Column("scheduled_at", Instant, nullable=False, server_default=utc_now()),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    # an operator wants it stopped: whoever works on it ends it after its next batch
    Column("cancel_requested_at", Instant),
    Column("correlation_id", Str(128)),
    version(),
    created_at(),
    updated_at(),
    UniqueConstraint("idempotent_key", name="uk_task_idem"),
    UniqueConstraint("slice_id", name="uk_task_slice"),  # one slice, one task; also serves as idx_task_slice
    Index("idx_task_queue", "status_code", "leased_until", "priority", "scheduled_at", "id"),
    Index("idx_task_pick", "status_code", "priority", "scheduled_at", "provenance_code", "operation_code"),
    # what waits and what is worked on in each partition, answered from the index alone
    Index(
        "idx_task_share",
        *("status_code", "provenance_code", "endpoint_name", "operation_code"),
        *("priority", "scheduled_at", "leased_until", "max_concurrent"),
    ),
    Index("idx_task_src_op", "provenance_code", "operation_code", "status_code"),
    Index("idx_task_cred", "credential_id"),
    Index("idx_task_plan", "plan_id", "status_code"),  # a partition drains the tasks of its own plan
)

ing_task_run = Table(
    "ing_task_run",
    metadata,
    id_column(),
    reference("task_id", nullable=False),
    Column("attempt_no", Integer, nullable=False),
    provenance(),
    operation(),
    status("PLANNED"),
    Column("checkpoint", Json),
    Column("stats", Json),
    Column("error", LongText),
    *window(),
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
    reference("run_id", nullable=False),
    reference("task_id"),
    reference("slice_id"),
    reference("plan_id"),
    Column("expr_hash", HASH),
    provenance(),
    operation(),
    Column("batch_no", Integer, nullable=False),
    Column("page_no", Integer),
    Column("page_size", Integer),
    # a token or, with URL pagination, the page's URL: too long for a key, hence the hash beside it
    Column("before_token", LongText),
    Column("before_token_hash", HASH),
    Column("after_token", LongText),
    Column("next_url", LongText),
    *window(),
    Column("request_digest", Json),
    Column("response_digest", Json),
    Column("idempotent_key", HASH, nullable=False),
    Column("record_count", Integer, nullable=False, server_default="0"),
    status("PLANNED"),
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

ing_record = Table(
    "ing_record",
    metadata,
    id_column(),
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("provider_id", Str(512), nullable=False),
    # the record's own time, by which a newer version replaces an older one; the row's times are the two below
    Column("updated_at", Instant, nullable=False),
    Column("record", Json, nullable=False),
    Column("expr_hash", HASH),
    reference("run_id"),
    reference("batch_id"),
    # when an update asked for it by its id, and with which expressions, whether or not its source had anything new
    Column("refresh_checked_at", Instant),
    Column("checked_expr_hash", HASH),
    # a number that is the same for the same provider_id everywhere: update buckets are its remainders
    Column("id_number", BigInteger, nullable=False, server_default="0"),
    created_at(),
    # when the record was stored last
    Column("modified_at", Instant, nullable=False, server_default=utc_now(), onupdate=now),
    UniqueConstraint("provenance_code", "endpoint_name", "provider_id", name="uk_record_provider_id"),
    Index("idx_record_refresh", "provenance_code", "endpoint_name", "refresh_checked_at"),
)

ing_outbox = Table(
    "ing_outbox",
    metadata,
    id_column(),
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("provider_id", Str(512), nullable=False),
    Column("event_type", Str(32), nullable=False),
    Column("payload", Json, nullable=False),
    # The record's key and version, by which readers tell an event that they know. It has no index: a batch publishes
    # with its own row, whose key is unique, and an index over hashes would cost more than the rest of the outbox.
    Column("idempotent_key", HASH, nullable=False),
    reference("run_id"),
    reference("batch_id"),
    created_at(),
    Column("published_at", Instant),
    Index("idx_outbox_unpublished", "published_at", "id"),
)

ing_signal = Table(
    "ing_signal",
    metadata,
    id_column(),
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("provider_id", Str(512), nullable=False),
    Column("id_number", BigInteger, nullable=False, server_default="0"),
    Column("reason", Str(512)),
    # who asked for the record: an API key, a command, the quarantine
    Column("requested_by", Str(128), nullable=False),
    Column("requested_at", Instant, nullable=False),
    status("OPEN"),
    reference("plan_id"),
    created_at(),
    updated_at(),
    UniqueConstraint("provenance_code", "endpoint_name", "provider_id", name="uk_signal_provider_id"),
    Index("idx_signal_status", "provenance_code", "endpoint_name", "status_code", "id"),
)

ing_endpoint_block = Table(
    "ing_endpoint_block",
    metadata,
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    Column("reason", LongText, nullable=False),
    Column("error_code", CODE),
    reference("task_id"),
    Column("blocked_at", Instant, nullable=False),
    PrimaryKeyConstraint("provenance_code", "endpoint_name"),
)

# Partitions in which fewer slices run at a time than their tasks say, because their source had trouble a moment ago.
ing_partition_limit = Table(
    "ing_partition_limit",
    metadata,
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    operation(),
    Column("max_concurrent", Integer, nullable=False),
    Column("reason", LongText, nullable=False),
    Column("lowered_at", Instant, nullable=False),
    Column("holds_until", Instant, nullable=False),
    PrimaryKeyConstraint("provenance_code", "endpoint_name", "operation_code"),
)

ing_record_quarantine = Table(
    "ing_record_quarantine",
    metadata,
    id_column(),
    provenance(),
    Column("endpoint_name", CODE, nullable=False),
    operation(),
    Column("provider_id", Str(512)),
    Column("reason_code", CODE, nullable=False),
    Column("field_path", Str(512)),
    Column("reason", LongText, nullable=False),
    Column("request_digest", Json),
    Column("response_fragment", Json),
    Column("expr_stack", Json),
    reference("schedule_instance_id"),
    reference("plan_id"),
    reference("slice_id"),
    reference("task_id"),
    reference("run_id"),
    reference("batch_id"),
    Column("expr_hash", HASH),
    Column("idempotent_key", HASH, nullable=False),
    status("OPEN"),
    created_at(),
    updated_at(),
    UniqueConstraint("idempotent_key", name="uk_quarantine_idem"),
    Index("idx_quarantine_status", "provenance_code", "endpoint_name", "status_code", "created_at"),
    Index("idx_quarantine_batch", "run_id", "batch_id"),
)

"""Tables of the lineage sink: raw events, counted runs, rebuilds, refused events, and the asynchronous tasks."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Fixed, Instant, Json, LongText, Str, utc_now

lineage_events = Table(
    "lineage_events",
    metadata,
    id_column(),
    Column("tenant_id", BigInteger, nullable=False),
    Column("tenant_code", Str(64), nullable=False),
    Column("tenant_name", Str(128), nullable=False),
    Column("event_time", Instant, nullable=False),
    Column("event_type", Str(32)),
    Column("run_uuid", Fixed(36)),
    Column("job_name", Str(255)),
    Column("job_namespace", Str(255)),
    Column("producer", Str(512)),
    Column("_event_type", Str(64), nullable=False, server_default="RUN_EVENT"),
    Column("event", Json, nullable=False),
    created_at(),
    # a client that did not see our answer sends the event again: the fingerprint keeps it one row
    Column("fingerprint", Fixed(64), nullable=False),
    Column("graph_applied_at", Instant),
    # the source type by whose rules the event was accepted: a rebuild must apply the same rules
    Column("source_type", Str(32)),
    # the place of the event in the order by which the graph is built; NULL in rows of an older release
    Column("version", Fixed(32)),
    UniqueConstraint("tenant_id", "fingerprint", name="uk_le_fingerprint"),
    CheckConstraint("_event_type IN ('RUN_EVENT', 'DATASET_EVENT', 'JOB_EVENT')", name="event_type"),
)
_events = lineage_events.c
Index("idx_le_tenant_time", _events.tenant_id, _events.event_time.desc())
Index("idx_le_tenant_event_type_time", _events.tenant_id, _events["_event_type"], _events.event_time.desc())
Index("idx_le_tenant_run_time", _events.tenant_id, _events.run_uuid, _events.event_time.desc())
Index("idx_le_tenant_job_time", _events.tenant_id, _events.job_namespace, _events.job_name, _events.event_time.desc())
Index("idx_le_created_at", _events.created_at.desc())
Index("idx_le_tenant_version", _events.tenant_id, _events.version)
Index("idx_le_graph_applied", _events.graph_applied_at, _events.id)  # finds events that are not in the graph yet

# executionCount counts runs, not deliveries of events: each run of an SQL is one row, and lineage_sql.runs counts them
lineage_sql_run = Table(
    "lineage_sql_run",
    metadata,
    Column("tenant_id", BigInteger, nullable=False),
    Column("sql_id", Str(64), nullable=False),
    Column("run_uuid", Fixed(36), nullable=False),
    created_at(),
    PrimaryKeyConstraint("tenant_id", "sql_id", "run_uuid"),
    Index("idx_sql_run_created", "created_at"),
)

lineage_sql = Table(
    "lineage_sql",
    metadata,
    Column("tenant_id", BigInteger, nullable=False),
    Column("sql_id", Str(64), nullable=False),
    Column("runs", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "sql_id"),
)

# the tables that events name, each with the newest of them: of these the newest are shown in Dagster
lineage_table_seen = Table(
    "lineage_table_seen",
    metadata,
    Column("tenant_id", BigInteger, nullable=False),
    # the id of its node in the graph
    Column("table_id", Str(64), nullable=False),
    Column("tenant_code", Str(64), nullable=False),
    Column("namespace", LongText, nullable=False),
    Column("name", LongText, nullable=False),
    Column("last_event_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "table_id"),
    Index("idx_table_seen_event", "last_event_id"),
)

# the tables that Dagster shows, as they were when the graph last answered: its definitions are loaded from here
lineage_table_shown = Table(
    "lineage_table_shown",
    metadata,
    Column("tenant_id", BigInteger, nullable=False),
    Column("table_id", Str(64), nullable=False),
    Column("tenant_code", Str(64), nullable=False),
    Column("namespace", LongText, nullable=False),
    Column("name", LongText, nullable=False),
    # a JSON list of the ids of the tables that its rows come from
    Column("upstream", LongText, nullable=False),
    PrimaryKeyConstraint("tenant_id", "table_id"),
)

# one row per tenant whose graph must be rebuilt, or has been
lineage_rebuild = Table(
    "lineage_rebuild",
    metadata,
    Column("tenant_id", BigInteger, primary_key=True, autoincrement=False),
    # grows with every request for a rebuild; `answered` is its value when the last finished rebuild began
    Column("requested", BigInteger, nullable=False),
    Column("answered", BigInteger, nullable=False, server_default="0"),
    Column("requested_at", Instant, nullable=False),
    Column("rebuilt_at", Instant),
    # the time of the oldest event that the last rebuild read
    Column("rebuilt_from", Instant),
    # grows whenever a name of the tenant gets another meaning
    Column("symlink_changes", BigInteger, nullable=False, server_default="0"),
)

# the tables that a name was linked to; it outlives the events that said so
lineage_symlink = Table(
    "lineage_symlink",
    metadata,
    Column("tenant_id", BigInteger, nullable=False),
    Column("name_id", Str(64), nullable=False),
    # {"name": [...], "tables": [[version, ...], ...]}, with the parts of each name
    Column("links", Json, nullable=False),
    # 1 if events use the name without saying what it is linked to
    Column("used", Integer, nullable=False),
    # 0 if a symlink came late, so that a rebuild must look for others that count after it
    Column("exact", Integer, nullable=False),
    PrimaryKeyConstraint("tenant_id", "name_id"),
)

# how often the recovery has failed in a row; no row if it last succeeded
lineage_recovery = Table(
    "lineage_recovery",
    metadata,
    Column("name", Str(64), primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("since", Instant, nullable=False),
    Column("error", LongText, nullable=False),
)

# the id up to which a reader of lineage_events has come; /metrics computes its lag from it
lineage_cursor = Table(
    "lineage_cursor",
    metadata,
    Column("name", Str(64), primary_key=True),
    Column("last_id", BigInteger, nullable=False),
    updated_at(),
)

lineage_dead_letter = Table(
    "lineage_dead_letter",
    metadata,
    id_column(),
    Column("tenant_id", BigInteger),  # NULL if the event was refused because its tenant is unknown
    Column("source", Str(255)),
    Column("source_type", Str(32)),
    Column("reason", LongText, nullable=False),
    # as received; it need not be JSON
    Column("payload", LongText, nullable=False),
    Column("payload_hash", Fixed(64), nullable=False),
    Column("status", Str(16), nullable=False, server_default="OPEN"),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    created_at(),
    updated_at(),
    Index("idx_dead_letter_status", "status", "created_at"),
    Index("idx_dead_letter_payload", "payload_hash"),
    Index("idx_dead_letter_created", "created_at"),
)

ol_async_task = Table(
    "ol_async_task",
    metadata,
    id_column(),
    Column("task_type", Str(32), nullable=False),
    Column("tenant_id", BigInteger, nullable=False),
    Column("tenant_code", Str(64), nullable=False),
    Column("resource_type", Str(32), nullable=False),
    Column("resource_id", Str(128), nullable=False),
    Column("content_hash", Fixed(64), nullable=False),
    Column("model_fingerprint", Str(256), nullable=False),
    Column("status", Str(16), nullable=False),
    Column("priority", Integer, nullable=False, server_default="100"),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("max_retry", Integer, nullable=False, server_default="5"),
    Column("next_run_at", Instant, nullable=False, server_default=utc_now()),
    Column("claim_token", Str(64)),
    Column("claim_until", Instant),
    Column("last_error", Str(1024)),
    created_at(),
    updated_at(),
    UniqueConstraint(
        "task_type",
        "tenant_id",
        "resource_type",
        "resource_id",
        "model_fingerprint",
        "content_hash",
        name="uq_task_dedup",
    ),
    Index("idx_task_poll", "status", "next_run_at", "priority", "id"),
    Index("idx_task_tenant", "tenant_id", "task_type", "status", "next_run_at"),
)

ol_async_task_attempt = Table(
    "ol_async_task_attempt",
    metadata,
    id_column(),
    Column("task_id", BigInteger, nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("worker_id", Str(64), nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Column("status", Str(16), nullable=False),
    Column("batch_no", Str(64)),
    Column("input_size", Integer),
    Column("latency_ms", BigInteger),
    Column("error_type", Str(128)),
    Column("error_message", Str(1024)),
    created_at(),
    ForeignKeyConstraint(["task_id"], ["ol_async_task.id"], name="fk_attempt_task"),
    Index("idx_attempt_task", "task_id", "attempt_no"),
    Index("idx_attempt_batch", "batch_no"),
)

ol_async_batch = Table(
    "ol_async_batch",
    metadata,
    id_column(),
    Column("batch_no", Str(64), nullable=False),
    Column("task_type", Str(32), nullable=False),
    Column("tenant_id", BigInteger, nullable=False),
    Column("model_fingerprint", Str(256), nullable=False),
    Column("worker_id", Str(64), nullable=False),
    Column("planned_size", Integer, nullable=False),
    Column("success_count", Integer, nullable=False, server_default="0"),
    Column("failed_count", Integer, nullable=False, server_default="0"),
    Column("started_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Column("status", Str(16), nullable=False),
    created_at(),
    UniqueConstraint("batch_no", name="uq_batch_no"),
)
_batches = ol_async_batch.c
Index("idx_batch_tenant_type_time", _batches.tenant_id, _batches.task_type, _batches.created_at.desc())

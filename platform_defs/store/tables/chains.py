"""Tables of the job chains: definitions, reusable jobs, runs, drives, nodes and checkpoints, audit, request keys."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Fixed, Instant, Json, LongText, Str

job_chain_definition = Table(
    "job_chain_definition",
    metadata,
    Column("chain_id", Str(64), primary_key=True),
    Column("name", Str(128), nullable=False),
    Column("description", LongText),
    Column("enabled", Boolean, nullable=False, server_default="1"),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("dag_json", Json, nullable=False),
    created_at(),
    updated_at(),
    UniqueConstraint("name", name="uk_job_chain_definition_name"),
)

job_definition = Table(
    "job_definition",
    metadata,
    Column("job_id", Str(64), primary_key=True),
    Column("name", Str(128), nullable=False),
    Column("description", LongText),
    Column("type", Str(64), nullable=False),
    Column("enabled", Boolean, nullable=False, server_default="1"),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("config_json", Json, nullable=False),
    created_at(),
    updated_at(),
)

job_run = Table(
    "job_run",
    metadata,
    Column("run_id", Str(64), primary_key=True),
    Column("chain_id", Str(64)),
    Column("job_id", Str(64)),
    Column("job_name", Str(128), nullable=False),
    Column("status", Str(32), nullable=False),
    # the snapshot that this run executes: the definition with its jobs resolved, as it was at the start
    Column("dag_json", Json, nullable=False),
    Column("chain_version", BigInteger),
    Column("params", Json),
    # who started it: the name of the API key, `operator` for the Dagster UI, the schedule, the table that arrived, ...
    Column("actor", Str(255)),
    Column("trigger_text", Str(255)),
    # the node of another run that started this one as its sub-chain, and how deep this run is nested
    Column("parent_run_id", Str(64)),
    Column("parent_node_id", Str(255)),
    Column("depth", Integer, nullable=False, server_default="0"),
    # raised by each stop, retry and complete, so that the process that drives the run reads the nodes again
    Column("operation_no", Integer, nullable=False, server_default="0"),
    # the newest drive of this run in job_run_drive; 0 before the first
    Column("drive_no", Integer, nullable=False, server_default="0"),
    Column("stop_requested_by", Str(255)),
    Column("error", LongText),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    created_at(),
    updated_at(),
    Index("idx_job_run_chain_id", "chain_id"),
    Index("idx_job_run_job_id", "job_id"),
    Index("idx_job_run_status", "status", "created_at"),
    Index("idx_job_run_parent", "parent_run_id"),
    Index("idx_job_run_updated", "updated_at"),
)

# A drive is one process, and one recorded Dagster run, that executes what can be executed of a run.
job_run_drive = Table(
    "job_run_drive",
    metadata,
    Column("run_id", Str(64), nullable=False),
    Column("drive_no", Integer, nullable=False, autoincrement=False),
    # its row of work, whose status says whether the drive is over; rows of work are deleted after their retention
    Column("work_id", BigInteger, nullable=False),
    Column("dagster_run_id", Fixed(36), nullable=False),
    # why it was begun: start, retry, complete, recovery, ...
    Column("reason", Str(64), nullable=False),
    created_at(),
    PrimaryKeyConstraint("run_id", "drive_no"),
    Index("idx_job_run_drive_work", "work_id"),
    Index("idx_job_run_drive_dagster", "dagster_run_id"),
)

job_run_node = Table(
    "job_run_node",
    metadata,
    Column("run_id", Str(64), nullable=False),
    Column("node_id", Str(255), nullable=False),
    Column("status", Str(32), nullable=False, server_default="PENDING"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("last_error", LongText),
    Column("artifact_json", Json),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    # attempts used since the start or the last manual retry; `attempt` counts all of them
    Column("tries", Integer, nullable=False, server_default="0"),
    # how often the process died while this node ran, since the start or the last manual retry
    Column("deaths", Integer, nullable=False, server_default="0"),
    # the drive that executes the present attempt; the result of any other drive or attempt is discarded
    Column("drive_no", Integer),
    # when a RETRYING node may be tried again
    Column("next_try_at", Instant),
    # what a RUNNING node waits for without a process, e.g. {"kind": "run", "runId": "..."}; null while it executes
    Column("waits_for", Json),
    # what people did to this node, oldest first: [{"action", "actor", "at", "reason", "from"}]
    Column("operations", Json),
    created_at(),
    updated_at(),
    PrimaryKeyConstraint("run_id", "node_id"),
)

job_run_checkpoint = Table(
    "job_run_checkpoint",
    metadata,
    Column("run_id", Str(64), nullable=False),
    Column("node_id", Str(255), nullable=False),
    Column("checkpoint_json", Json, nullable=False),
    created_at(),
    updated_at(),
    PrimaryKeyConstraint("run_id", "node_id"),
)

job_audit = Table(
    "job_audit",
    metadata,
    id_column(),
    Column("actor", Str(255), nullable=False),
    # chain.create, chain.update, chain.enable, run.start, run.stop, node.retry, node.complete, job.create, ...
    Column("action", Str(32), nullable=False),
    # the chain, job or run; for a node its run, with the node's id in node_id
    Column("object_id", Str(64), nullable=False),
    Column("node_id", Str(255)),
    Column("before_json", Json),
    Column("after_json", Json),
    Column("reason", LongText),
    created_at(),
    Index("idx_job_audit_object", "object_id", "id"),
    Index("idx_job_audit_created", "created_at"),
)

# One row per Idempotency-Key that a client sent: the same key again gives the answer of the first request.
job_request_key = Table(
    "job_request_key",
    metadata,
    # the principal and what was asked, e.g. "key:3 start CHAIN"
    Column("scope", Str(191), nullable=False),
    Column("request_key", Str(255), nullable=False),
    Column("body_hash", Fixed(64), nullable=False),
    # the chain, job or run that the first request made
    Column("object_id", Str(64), nullable=False),
    created_at(),
    PrimaryKeyConstraint("scope", "request_key"),
    Index("idx_job_request_key_created", "created_at"),
)

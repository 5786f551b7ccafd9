"""Tables of the job chains: definitions, reusable jobs, runs, their nodes and checkpoints."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, metadata, updated_at
from platform_defs.store.types import Instant, Json, LongText, Str

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
    Column("dag_json", Json, nullable=False),
    created_at(),
    updated_at(),
    Index("idx_job_run_chain_id", "chain_id"),
    Index("idx_job_run_job_id", "job_id"),
    Index("idx_job_run_status", "status", "created_at"),
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

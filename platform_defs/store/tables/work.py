"""Tables of work: rows of work, the runners that execute them, ticks of sensors, versions of definition rows."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Fixed, Instant, Json, LongText, Str

work = Table(
    "work",
    metadata,
    id_column(),
    Column("kind", Str(64), nullable=False),
    Column("payload", Json, nullable=False),
    # two writers that give the same key write one row
    Column("idempotent_key", Str(255)),
    # the recorded Dagster run of this row, chosen when the row is written so that its writer can link to it
    Column("run_id", Fixed(36), nullable=False),
    Column("status", Str(16), nullable=False),
    Column("priority", Integer, nullable=False, server_default="100"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    # no runner takes the row before this time; NULL is at once
    Column("not_before", Instant),
    # what the run uses besides a slot, such as a data source, and of which only so many may be used at a time
    Column("resource", Str(64)),
    Column("lease_owner", Str(255)),
    Column("leased_until", Instant),
    Column("claimed_at", Instant),
    Column("heartbeat_at", Instant),
    Column("pid", Integer),
    # when the process started: identifies it together with the pid, which the kernel reuses
    Column("process_started", BigInteger),
    Column("cancel_requested_at", Instant),
    # who or what ended the run, if it did not end by itself (EndedBy in work/rows.py)
    Column("ended_by", Str(16)),
    Column("result", Json),
    Column("error", LongText),
    created_at(),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    updated_at(),
    UniqueConstraint("idempotent_key", name="uk_work_idem"),
    UniqueConstraint("run_id", name="uk_work_run"),
    Index("idx_work_queue", "status", "priority", "id"),
    Index("idx_work_lease", "status", "leased_until"),
)

# Whoever claims rows with a resource locks the row of that resource, so that two runners do not both take the last one.
resources = Table(
    "work_resource",
    metadata,
    Column("name", Str(64), primary_key=True),
    Column("claimed_at", Instant, nullable=False),
)

runners = Table(
    "work_runner",
    metadata,
    Column("name", Str(255), primary_key=True),
    Column("hostname", Str(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started", BigInteger, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("busy", Integer, nullable=False, server_default="0"),
    Column("definitions", Fixed(64)),
    # why the newest definitions could not be loaded; the runner goes on with older ones
    Column("load_error", LongText),
    # the metrics of this runner, in the text format of /metrics
    Column("metrics", LongText),
    Column("started_at", Instant, nullable=False),
    Column("heartbeat_at", Instant, nullable=False),
    Column("stopped_at", Instant),
)

# Sensors note their ticks here, so that processes that know nothing of Dagster can tell that one stands still.
sensor_ticks = Table(
    "work_sensor_tick",
    metadata,
    Column("name", Str(64), primary_key=True),
    # the last tick without an error
    Column("succeeded_at", Instant),
    Column("failed_at", Instant),
    Column("error", LongText),
)

definition_versions = Table(
    "work_definition_version",
    metadata,
    Column("name", Str(64), primary_key=True),
    Column("version", BigInteger, nullable=False),
    updated_at(),
)

"""Tables of table arrival: models, what they depend on, arrivals, executions, KPIs and their values."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import ExactNumber, Fixed, Instant, Json, LongText, OthersInstant, Str


def _short_id() -> Column[int]:
    return Column("id", Integer, primary_key=True, autoincrement=True)


metrics_model_dependency = Table(
    "metrics_model_dependency",
    metadata,
    _short_id(),
    Column("model_id", Str(255), nullable=False),
    Column("dependency_table_name", Str(255), nullable=False),
    UniqueConstraint("model_id", "dependency_table_name", name="uk_model_dependency"),
    Index("idx_model_dependency_table", "dependency_table_name"),
)

metrics_etl_log = Table(
    "metrics_etl_log",
    metadata,
    _short_id(),
    Column("table_name", Str(255), nullable=False),
    Column("op_time", Str(255), nullable=False),
    Column("arrival_time", OthersInstant, nullable=False),
    # the arrival_time that was last reported to Dagster; ETL jobs that write rows themselves leave it NULL
    Column("reported_time", Instant),
    UniqueConstraint("table_name", "op_time", name="uk_etl_log"),
    Index("idx_etl_log_arrival", "arrival_time"),
)

metrics_task_log = Table(
    "metrics_task_log",
    metadata,
    _short_id(),
    Column("model_id", Str(255), nullable=False),
    Column("op_time", Str(255), nullable=False),
    Column("status", Str(255), nullable=False),
    Column("start_time", Instant),
    Column("end_time", Instant),
    Column("message", Str(2000)),
    Column("compute_count", Integer),
    Column("storage_count", Integer),
    # the arrivals that the run read: {table name: arrival_time}; a batch written with dashes is added to the name
    Column("versions", Json),
    # dependencies that had not arrived when an operator launched the execution anyway
    Column("missing_tables", Json),
    Column("trigger_code", Str(16)),
    # 1 at first; grows each time a crash makes the same execution start again
    Column("attempt", Integer, nullable=False, server_default="1"),
    # the arrivals that count as read if the execution dies: at first those that made it due, then those that it read;
    # a list of [table name, opTime as the arrival's row spells it, arrival_time]
    Column("inputs", Json),
    # deaths of runner, host or platform before this attempt, which are not the model's fault
    Column("crashes", Integer, nullable=False, server_default="0"),
    # 1 at first; grows each time a source that is down makes the same execution wait and start again
    Column("try_number", Integer, nullable=False, server_default="1"),
    # what failed, if the platform reacts to it: SOURCE, whose data source did not answer
    Column("failure_code", Str(16)),
    # who or what ended the execution, if it did not end by itself (EndedBy in work/rows.py)
    Column("ended_by", Str(16)),
    # the process that executes it, as host:pid:started
    Column("process", Str(255)),
    # set when the execution is closed by another process than its own: until then its statement, which may still run
    # at the source, is looked for and ended
    Column("statement_until", Instant),
    # the row of work of this execution; NULL if Dagster launched the run without one
    Column("work_id", BigInteger),
    Column("run_id", Fixed(36)),
    # when the values of a successful execution were reported to Dagster
    Column("reported_at", Instant),
    # (model, op_time, status) as one key would exceed MySQL's 3072 bytes; the rows of one batch are few
    Index("idx_task_log_batch", "model_id", "op_time"),
    Index("idx_task_log_status", "status", "start_time"),
    Index("idx_task_log_reported", "status", "reported_at", "end_time"),
    Index("idx_task_log_statement", "statement_until"),
)

# Has a row for a batch while a task of the batch is RUNNING; the primary key allows only one.
metrics_model_running = Table(
    "metrics_model_running",
    metadata,
    Column("model_id", Str(255), primary_key=True),
    Column("op_time", Str(255), primary_key=True),
    Column("task_id", Integer, nullable=False),
    Index("idx_model_running_task", "task_id"),
)

# The arrivals that the last ended execution of each batch read: one query finds the batches that changed since then.
# op_time is written as in the row of the arrival.
metrics_model_input = Table(
    "metrics_model_input",
    metadata,
    id_column(),
    Column("model_id", Str(255), nullable=False),
    Column("op_time", Str(255), nullable=False),
    Column("dependency_table_name", Str(255), nullable=False),
    Column("arrival_time", Instant, nullable=False),
    UniqueConstraint("model_id", "op_time", "dependency_table_name", name="uk_model_input"),
)

metrics_model = Table(
    "metrics_model",
    metadata,
    id_column(),
    Column("model_id", Str(255), nullable=False),
    Column("name", Str(255), nullable=False),
    Column("state", Str(16), nullable=False, server_default="0"),
    Column("source", Str(64)),
    Column("source_sql", LongText, nullable=False),
    Column("dimensions", Json, nullable=False),
    Column("target", Str(255)),
    Column("due", Str(16)),
    # how often an execution is tried while its source is down, and how long its query may take; NULL: the settings'
    Column("retries", Integer),
    Column("timeout_s", Double),
    Column("published_at", Instant),
    # grows with every change of SQL, KPIs, dimensions or source
    Column("version", Integer, nullable=False, server_default="1"),
    # the batches that the model's page in the UI has: DAY, MONTH and so on; NULL means every opTime
    Column("period", Str(16)),
    created_at(),
    updated_at(),
    UniqueConstraint("model_id", name="uk_model_id"),
)

metrics_kpi = Table(
    "metrics_kpi",
    metadata,
    id_column(),
    Column("kpi_id", Str(64), nullable=False),
    Column("name", Str(255)),
    Column("kpi_type", Str(16), nullable=False),  # EXTENDED belongs to a model, COMPUTED builds on other KPIs
    Column("model_id", Str(255)),
    Column("expression", LongText, nullable=False),
    Column("depends_on", Json),
    created_at(),
    updated_at(),
    UniqueConstraint("kpi_id", name="uk_kpi_id"),
    Index("idx_kpi_model", "model_id"),
)

metrics_kpi_value = Table(
    "metrics_kpi_value",
    metadata,
    id_column(),
    Column("kpi_id", Str(64), nullable=False),
    Column("op_time", Str(255), nullable=False),
    Column("model_id", Str(255)),
    Column("dims", Json, nullable=False),
    Column("dims_hash", Fixed(64), nullable=False),
    Column("kpi_value", ExactNumber, nullable=False),
    # the version of the model that computed it; NULL for values from before versions were counted
    Column("model_version", Integer),
    created_at(),
    updated_at(),
    UniqueConstraint("kpi_id", "op_time", "dims_hash", name="uk_kpi_value"),
    Index("idx_kpi_value_model", "model_id", "op_time"),
)

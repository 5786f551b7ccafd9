"""Tables of table arrival: models, what they depend on, arrivals, executions, KPIs and webhook subscriptions."""

from sqlalchemy import Column, Double, Index, Integer, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Fixed, Instant, Json, LongText, Str


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
    Column("arrival_time", Instant, nullable=False),
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
    # (model, op_time, status) as one key would exceed MySQL's 3072 bytes; the rows of one batch are few
    Index("idx_task_log_batch", "model_id", "op_time"),
    Index("idx_task_log_status", "status", "start_time"),
)

metrics_webhook_subscription = Table(
    "metrics_webhook_subscription",
    metadata,
    _short_id(),
    Column("kpi_id", Str(64), nullable=False),
    Column("callback_url", Str(512), nullable=False),
    Column("secret", Str(2048)),
    Column("retry_num", Integer, nullable=False, server_default="3"),
    Column("status", Str(16), nullable=False, server_default="1"),
    Column("team_name", Str(64)),
    Column("user_id", Str(64)),
    created_at(),
    Index("idx_webhook_kpi", "kpi_id", "status"),
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
    Column("kpi_value", Double, nullable=False),
    created_at(),
    updated_at(),
    UniqueConstraint("kpi_id", "op_time", "dims_hash", name="uk_kpi_value"),
    Index("idx_kpi_value_model", "model_id", "op_time"),
)

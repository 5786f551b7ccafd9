"""Tables of webhooks: subscriptions, deliveries written before anything is sent, and every attempt."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Fixed, Instant, Json, LongText, Str

metrics_webhook_subscription = Table(
    "metrics_webhook_subscription",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("kpi_id", Str(64), nullable=False),
    Column("callback_url", Str(512), nullable=False),
    Column("secret", Str(2048)),
    Column("retry_num", Integer, nullable=False, server_default="3"),
    Column("status", Str(16), nullable=False, server_default="1"),
    # signs deliveries as Standard Webhooks says; like `secret` it is a reference or encrypted
    Column("signing_secret", Str(2048)),
    Column("disabled_reason", Str(255)),
    Column("team_name", Str(64)),
    Column("user_id", Str(64)),
    created_at(),
    Index("idx_webhook_kpi", "kpi_id", "status"),
)

metrics_webhook_delivery = Table(
    "metrics_webhook_delivery",
    metadata,
    id_column(),
    # by which a receiver recognises a repeated delivery: the same on every attempt
    Column("webhook_id", Str(64), nullable=False),
    # the event; arrivals' are tasks, about a model and a batch (model_id, op_time)
    Column("task_id", Integer, nullable=False),
    # digest of callback, retries, secrets and team: subscriptions that agree in them share one delivery
    Column("group_hash", Fixed(64), nullable=False),
    Column("model_id", Str(255), nullable=False),
    Column("op_time", Str(255), nullable=False),
    Column("callback_url", Str(512), nullable=False),
    Column("subscription_ids", Json, nullable=False),
    # copies of the subscription's: references or encrypted, revealed only when an attempt is made
    Column("secret", Str(2048)),
    Column("signing_secret", Str(2048)),
    Column("retry_num", Integer, nullable=False),
    Column("body", LongText, nullable=False),
    Column("event_time", Instant, nullable=False),
    Column("status", Str(16), nullable=False),  # PENDING, DELIVERED, DEAD
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", Instant),
    Column("lease_owner", Str(255)),
    Column("leased_until", Instant),
    Column("last_error", Str(1000)),
    Column("finished_at", Instant),
    created_at(),
    updated_at(),
    UniqueConstraint("webhook_id", name="uk_webhook_delivery_id"),
    UniqueConstraint("task_id", "group_hash", name="uk_webhook_delivery_group"),
    Index("idx_webhook_delivery_due", "status", "next_attempt_at"),
)

metrics_webhook_attempt = Table(
    "metrics_webhook_attempt",
    metadata,
    id_column(),
    Column("delivery_id", BigInteger, nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("latency_ms", Integer),
    Column("http_status", Integer),
    Column("outcome", Str(16), nullable=False),
    Column("error", Str(1000)),
    Column("answer", Str(1024)),
    UniqueConstraint("delivery_id", "attempt_no", name="uk_webhook_attempt"),
)

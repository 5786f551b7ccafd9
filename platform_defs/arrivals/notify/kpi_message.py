"""The KPI_UPDATED message: its text, and the deliveries that carry it to the subscribers of affected KPIs."""

import json
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, select

from platform_defs.arrivals.notify.impact import affected_kpis
from platform_defs.store.tables.arrivals import metrics_kpi
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.deliveries import Message
from platform_defs.webhooks.recipients import ENABLED, group_subscriptions

EVENT = "KPI_UPDATED"
MESSAGE_FIELDS = ("event", "modelId", "opTime", "affectedKpiIds", "timestamp")


def message_text(model_id: str, op_time: str, affected_kpi_ids: Sequence[str], at: datetime, zone: ZoneInfo) -> str:
    """The body as the seed defines it; the timestamp is in the zone of the deployment."""
    values = (EVENT, model_id, op_time, list(affected_kpi_ids), at.astimezone(zone).isoformat(timespec="seconds"))
    return json.dumps(dict(zip(MESSAGE_FIELDS, values, strict=True)), ensure_ascii=False, separators=(",", ":"))


def notify_subscribers(
    connection: Connection,
    *,
    task_id: int,
    model_id: str,
    op_time: str,
    kpi_ids: Sequence[str],
    at: datetime,
    zone: ZoneInfo,
) -> int:
    """Writes the deliveries of a task that changed these KPIs; returns how many are new.

    Runs in the transaction that closes the task. The same task again writes nothing.
    """
    if not kpi_ids:
        return 0
    computed = select(metrics_kpi.c.kpi_id, metrics_kpi.c.depends_on).where(metrics_kpi.c.kpi_type == "COMPUTED")
    affected = affected_kpis(kpi_ids, {row.kpi_id: row.depends_on or () for row in connection.execute(computed)})
    subscription = metrics_webhook_subscription.c
    subscribers = (
        select(metrics_webhook_subscription)
        .where(subscription.kpi_id.in_(affected), subscription.status == ENABLED)
        .order_by(subscription.id)
    )
    recipients = group_subscriptions(connection.execute(subscribers))
    text = message_text(model_id, op_time, affected, at, zone)
    return deliveries.write(connection, Message(task_id, model_id, op_time, text, at), recipients)

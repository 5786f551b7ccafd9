"""Deliveries: written with the end of a task, before anything is sent; shown, and sent again where given up."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, false, func, or_, select, true, update

from platform_defs.arrivals.notify.impact import affected
from platform_defs.arrivals.notify.subscriptions import ENABLED, group_hash, group_hashes
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.arrivals import metrics_kpi
from platform_defs.store.tables.webhooks import (
    metrics_webhook_attempt,
    metrics_webhook_delivery,
    metrics_webhook_subscription,
)
from platform_defs.store.upsert import upsert
from platform_defs.webhooks.errors import NotRedeliverable, UnknownDelivery
from platform_defs.webhooks.message import notification

PENDING = "PENDING"
DELIVERED = "DELIVERED"
DEAD = "DEAD"
STATUSES = (PENDING, DELIVERED, DEAD)
PAGE = 100
MAX_PAGE = 1000

_table = metrics_webhook_delivery


@dataclass(frozen=True)
class Attempt:
    attempt_no: int
    started_at: datetime
    latency_ms: int | None
    http_status: int | None
    outcome: str
    error: str | None
    answer: str | None


@dataclass(frozen=True)
class Delivery:
    """A delivery as it may be shown; its secrets are not part of it."""

    id: int
    webhook_id: str
    status: str
    model_id: str
    op_time: str
    callback_url: str
    subscription_ids: tuple[int, ...]
    retry_num: int
    body: str
    created_at: datetime
    next_attempt_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    attempts: tuple[Attempt, ...]


def write(
    connection: Connection,
    *,
    task_id: int,
    model_id: str,
    op_time: str,
    kpi_ids: Sequence[str],
    at: datetime,
    zone: ZoneInfo,
) -> int:
    """One delivery per group of subscriptions to what this task changed; the same task again changes nothing."""
    if not kpi_ids:
        return 0
    computed = select(metrics_kpi.c.kpi_id, metrics_kpi.c.depends_on).where(metrics_kpi.c.kpi_type == "COMPUTED")
    closure = affected(kpi_ids, {row.kpi_id: row.depends_on or () for row in connection.execute(computed)})
    subscribed = metrics_webhook_subscription.c
    to_these = (
        select(metrics_webhook_subscription)
        .where(subscribed.kpi_id.in_(closure), subscribed.status == ENABLED)
        .order_by(subscribed.id)
    )
    groups: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(to_these):
        groups[group_hash(row)].append(row)
    body = notification(model_id, op_time, closure, at, zone)
    rows = [
        {
            "webhook_id": f"msg_{uuid.uuid4().hex}",
            "task_id": task_id,
            "group_hash": group,
            "model_id": model_id,
            "op_time": op_time,
            "callback_url": members[0].callback_url,
            "subscription_ids": [member.id for member in members],
            "secret": members[0].secret,
            "signing_secret": members[0].signing_secret,
            "retry_num": members[0].retry_num,
            "body": body,
            "event_time": at,
            "status": PENDING,
            "next_attempt_at": at,
        }
        for group, members in sorted(groups.items())
    ]
    return upsert(connection, _table, rows, key=["task_id", "group_hash"], update="nothing")


def overdue(connection: Connection, older_than: timedelta) -> int:
    """Deliveries that should have been attempted that long ago, and that nobody is attempting."""
    moment = now()
    waiting = and_(_table.c.status == PENDING, _table.c.next_attempt_at < moment - older_than, unleased(moment))
    return connection.execute(select(func.count()).select_from(_table).where(waiting)).scalar_one()


def unleased(moment: datetime) -> ColumnElement[bool]:
    return or_(_table.c.leased_until.is_(None), _table.c.leased_until <= moment)


def listed(
    engine: Engine,
    *,
    status: str | None = None,
    team: str | None = None,
    before: int | None = None,
    limit: int = PAGE,
) -> list[Delivery]:
    """The newest first, each with its attempts; `before` is the id that the next page starts below."""

    def work(connection: Connection) -> list[Delivery]:
        query = select(_table).where(_visible(connection, team)).order_by(_table.c.id.desc()).limit(limit)
        if status is not None:
            query = query.where(_table.c.status == status)
        if before is not None:
            query = query.where(_table.c.id < before)
        return _with_attempts(connection, connection.execute(query).all())

    return read(engine, work)


def find(engine: Engine, delivery_id: int, *, team: str | None = None) -> Delivery:
    def work(connection: Connection) -> list[Delivery]:
        query = select(_table).where(_table.c.id == delivery_id, _visible(connection, team))
        return _with_attempts(connection, connection.execute(query).all())

    found = read(engine, work)
    if not found:
        raise UnknownDelivery(delivery_id)
    return found[0]


def redeliver(engine: Engine, delivery_id: int, *, team: str | None = None) -> Delivery:
    """Sends a dead letter again: the same id and body, with all its attempts anew."""
    if find(engine, delivery_id, team=team).status != DEAD:
        raise NotRedeliverable(f"delivery {delivery_id} is not a dead letter")
    if not transact(engine, lambda connection: _revive(connection, _table.c.id == delivery_id)):
        raise NotRedeliverable(f"every subscription of delivery {delivery_id} is disabled or removed")
    return find(engine, delivery_id, team=team)


def redeliver_all(engine: Engine) -> int:
    """Sends every dead letter again that somebody still subscribes to."""
    return transact(engine, lambda connection: _revive(connection, true()))


def still_wanted(connection: Connection, rows: Sequence[Any]) -> set[int]:
    """Of these deliveries the ids of those that at least one enabled subscription still asks for."""
    asked = {number for row in rows for number in row.subscription_ids}
    table = metrics_webhook_subscription.c
    query = select(table.id).where(table.id.in_(asked), table.status == ENABLED)
    enabled = set(connection.execute(query).scalars()) if asked else set()
    return {row.id for row in rows if not enabled.isdisjoint(row.subscription_ids)}


def _revive(connection: Connection, which: ColumnElement[bool]) -> int:
    query = select(_table.c.id, _table.c.subscription_ids).where(_table.c.status == DEAD, which)
    wanted = still_wanted(connection, connection.execute(query).all())
    if not wanted:
        return 0
    moment = now()
    values = {
        "status": PENDING,
        "attempts": 0,
        "next_attempt_at": moment,
        "lease_owner": None,
        "leased_until": None,
        "last_error": None,
        "finished_at": None,
    }
    statement = update(_table).where(_table.c.id.in_(wanted), _table.c.status == DEAD).values(values)
    return connection.execute(statement).rowcount


def _visible(connection: Connection, team: str | None) -> ColumnElement[bool]:
    """A team sees what was written for subscriptions that it has."""
    if team is None:
        return true()
    hashes = group_hashes(connection, team)
    return _table.c.group_hash.in_(hashes) if hashes else false()


def _with_attempts(connection: Connection, rows: Sequence[Row[Any]]) -> list[Delivery]:
    attempts = metrics_webhook_attempt
    query = (
        select(attempts)
        .where(attempts.c.delivery_id.in_([row.id for row in rows]))
        .order_by(attempts.c.delivery_id, attempts.c.attempt_no)
    )
    made: defaultdict[int, list[Attempt]] = defaultdict(list)
    for row in connection.execute(query) if rows else ():
        made[row.delivery_id].append(
            Attempt(
                row.attempt_no,
                row.started_at,
                row.latency_ms,
                row.http_status,
                row.outcome,
                row.error,
                row.answer,
            )
        )
    return [
        Delivery(
            id=row.id,
            webhook_id=row.webhook_id,
            status=row.status,
            model_id=row.model_id,
            op_time=row.op_time,
            callback_url=row.callback_url,
            subscription_ids=tuple(row.subscription_ids),
            retry_num=row.retry_num,
            body=row.body,
            created_at=row.created_at,
            next_attempt_at=row.next_attempt_at,
            finished_at=row.finished_at,
            last_error=row.last_error,
            attempts=tuple(made[row.id]),
        )
        for row in rows
    ]


def wire(delivery: Delivery) -> dict[str, Any]:
    """As HTTP and `--json` show it."""
    return {
        "id": delivery.id,
        "webhookId": delivery.webhook_id,
        "status": delivery.status,
        "modelId": delivery.model_id,
        "opTime": delivery.op_time,
        "callbackUrl": delivery.callback_url,
        "subscriptionIds": list(delivery.subscription_ids),
        "retryNum": delivery.retry_num,
        "body": delivery.body,
        "createdAt": delivery.created_at.isoformat(),
        "nextAttemptAt": _text(delivery.next_attempt_at),
        "finishedAt": _text(delivery.finished_at),
        "lastError": delivery.last_error,
        "attempts": [
            {
                "attemptNo": attempt.attempt_no,
                "startedAt": attempt.started_at.isoformat(),
                "latencyMs": attempt.latency_ms,
                "httpStatus": attempt.http_status,
                "outcome": attempt.outcome,
                "error": attempt.error,
                "answer": attempt.answer,
            }
            for attempt in delivery.attempts
        ],
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()

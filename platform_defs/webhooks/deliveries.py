"""Deliveries: rows that are written before anything is sent, listed with their attempts, and sent again on demand."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, false, func, or_, select, true, update

from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.repeating import once
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery
from platform_defs.store.upsert import upsert
from platform_defs.webhooks.errors import NotRedeliverable, UnknownDelivery
from platform_defs.webhooks.recipients import Recipient, enabled_among, group_hashes_of_team

# statuses: an attempt is to be made, one succeeded, none is made any more (a dead letter)
PENDING = "PENDING"
DELIVERED = "DELIVERED"
DEAD = "DEAD"
STATUSES = (PENDING, DELIVERED, DEAD)
PAGE = 100
MAX_PAGE = 1000

_table = metrics_webhook_delivery


@dataclass(frozen=True)
class Message:
    """What a system has to say, the same to every recipient.

    `event_id` makes it unique: writing the same event again changes nothing. `subject` and `batch` are shown with its
    deliveries; with `event_id` they are kept in columns named after the first system that used them: model_id, op_time
    and task_id.
    """

    event_id: int
    subject: str
    batch: str
    body: str
    at: datetime


@dataclass(frozen=True)
class Attempt:
    """One attempt of a delivery; `answer` is the beginning of the receiver's, with secrets masked."""

    attempt_no: int
    started_at: datetime
    latency_ms: int | None
    http_status: int | None
    outcome: str
    error: str | None
    answer: str | None


@dataclass(frozen=True)
class Delivery:
    """A delivery as a listing may show it: without its secrets."""

    id: int
    webhook_id: str
    status: str
    subject: str
    batch: str
    callback_url: str
    subscription_ids: tuple[int, ...]
    retry_num: int
    body: str
    created_at: datetime
    next_attempt_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    attempts: tuple[Attempt, ...]


def write(connection: Connection, message: Message, recipients: Sequence[Recipient]) -> int:
    """Writes one delivery per recipient in the caller's transaction; returns how many are new."""
    rows = [
        {
            "webhook_id": f"msg_{uuid.uuid4().hex}",
            "task_id": message.event_id,
            "group_hash": recipient.group_hash,
            "model_id": message.subject,
            "op_time": message.batch,
            "callback_url": recipient.callback_url,
            "subscription_ids": list(recipient.subscription_ids),
            "secret": recipient.secret,
            "signing_secret": recipient.signing_secret,
            "retry_num": recipient.retry_num,
            "body": message.body,
            "event_time": message.at,
            "status": PENDING,
            "next_attempt_at": message.at,
        }
        for recipient in recipients
    ]
    return upsert(connection, _table, rows, key=["task_id", "group_hash"], update="nothing")


def count_overdue(connection: Connection, older_than: timedelta) -> int:
    """Deliveries whose next attempt was due that long ago and that no sender has leased."""
    moment = now()
    waiting = and_(_table.c.status == PENDING, _table.c.next_attempt_at < moment - older_than, has_no_lease(moment))
    return connection.execute(select(func.count()).select_from(_table).where(waiting)).scalar_one()


def has_no_lease(moment: datetime) -> ColumnElement[bool]:
    return or_(_table.c.leased_until.is_(None), _table.c.leased_until <= moment)


def list_newest(
    engine: Engine,
    *,
    status: str | None = None,
    team: str | None = None,
    before: int | None = None,
    limit: int = PAGE,
) -> list[Delivery]:
    """A page of deliveries with their attempts, the newest first; the next page starts below the id `before`."""

    def work(connection: Connection) -> list[Delivery]:
        query = select(_table).where(_is_visible(connection, team)).order_by(_table.c.id.desc()).limit(limit)
        if status is not None:
            query = query.where(_table.c.status == status)
        if before is not None:
            query = query.where(_table.c.id < before)
        return _with_attempts(connection, connection.execute(query).all())

    return read(engine, work)


def find(engine: Engine, delivery_id: int, *, team: str | None = None) -> Delivery:
    """Raises UnknownDelivery also for a delivery that the team may not see."""

    def work(connection: Connection) -> list[Delivery]:
        query = select(_table).where(_table.c.id == delivery_id, _is_visible(connection, team))
        return _with_attempts(connection, connection.execute(query).all())

    found = read(engine, work)
    if not found:
        raise UnknownDelivery(delivery_id)
    return found[0]


def redeliver(engine: Engine, delivery_id: int, *, team: str | None = None) -> Delivery:
    """Has a dead letter sent again with the same webhook id and body, and with as many attempts as a new delivery."""
    if find(engine, delivery_id, team=team).status != DEAD:
        raise NotRedeliverable(f"delivery {delivery_id} is not a dead letter")

    def work(connection: Connection) -> int:
        return _revive(connection, _table.c.id == delivery_id)

    def is_revived(connection: Connection, _: int) -> bool:
        dead = and_(_table.c.id == delivery_id, _table.c.status == DEAD)
        return connection.execute(select(_table.c.id).where(dead)).first() is None

    if not transact(engine, once(work, is_revived)):
        raise NotRedeliverable(f"every subscription of delivery {delivery_id} is disabled or removed")
    return find(engine, delivery_id, team=team)


def redeliver_all(engine: Engine) -> int:
    """Has every dead letter sent again that still has an enabled subscription."""
    return transact(engine, lambda connection: _revive(connection, true()))


def wanted_deliveries(connection: Connection, rows: Sequence[Any]) -> set[int]:
    """The ids of those deliveries among `rows` that have an enabled subscription, or that never had a subscription."""
    asked = {subscription_id for row in rows for subscription_id in row.subscription_ids}
    enabled = enabled_among(connection, asked)
    return {row.id for row in rows if not row.subscription_ids or not enabled.isdisjoint(row.subscription_ids)}


def _revive(connection: Connection, which: ColumnElement[bool]) -> int:
    query = select(_table.c.id, _table.c.subscription_ids).where(_table.c.status == DEAD, which)
    wanted = wanted_deliveries(connection, connection.execute(query).all())
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


def _is_visible(connection: Connection, team: str | None) -> ColumnElement[bool]:
    """A team sees the deliveries that were written for subscriptions that it has now."""
    if team is None:
        return true()
    hashes = group_hashes_of_team(connection, team)
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
            subject=row.model_id,
            batch=row.op_time,
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


def json_fields(delivery: Delivery) -> dict[str, Any]:
    """A delivery as HTTP and `--json` show it; published names, which stay whatever system wrote the delivery."""
    return {
        "id": delivery.id,
        "webhookId": delivery.webhook_id,
        "status": delivery.status,
        "modelId": delivery.subject,
        "opTime": delivery.batch,
        "callbackUrl": delivery.callback_url,
        "subscriptionIds": list(delivery.subscription_ids),
        "retryNum": delivery.retry_num,
        "body": delivery.body,
        "createdAt": delivery.created_at.isoformat(),
        "nextAttemptAt": _iso_text(delivery.next_attempt_at),
        "finishedAt": _iso_text(delivery.finished_at),
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


def _iso_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()

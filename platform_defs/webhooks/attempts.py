"""The queue of attempts in the database: claimed under a lease, and settled by what the receiver answered."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, select, update

from platform_defs.arrivals.notify.subscriptions import DISABLED
from platform_defs.store.claim import claim
from platform_defs.store.tables.webhooks import (
    metrics_webhook_attempt,
    metrics_webhook_delivery,
    metrics_webhook_subscription,
)
from platform_defs.webhooks.deliveries import DEAD, DELIVERED, PENDING, still_wanted, unleased
from platform_defs.webhooks.message import Message

FIRST_DELAY_S = 1
MAX_DELAY_S = 3600
GONE = 410
UNWANTED = "every subscription of it was disabled or removed"
INTERRUPTED = "the sender ended before the answer came"

STARTED = "STARTED"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
LOST = "LOST"

_delivery = metrics_webhook_delivery
_attempt = metrics_webhook_attempt
_IN_ORDER = (_delivery.c.next_attempt_at, _delivery.c.id)


@dataclass(frozen=True)
class Claimed:
    """One attempt that is ours to make: its number is taken, whatever becomes of us."""

    delivery_id: int
    attempt_no: int
    lease: str
    message: Message


@dataclass(frozen=True)
class Outcome:
    """What an attempt came to."""

    http_status: int | None
    latency_ms: int
    error: str | None = None
    answer: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.http_status is not None and 200 <= self.http_status < 300


@dataclass(frozen=True)
class Verdict:
    """What becomes of the delivery: `delay_s` is when to try again, None where it is over."""

    status: str
    delay_s: int | None = None
    disable: bool = False


def judge(outcome: Outcome, *, failed_before: int, retry_num: int) -> Verdict:
    """The first attempt plus retry_num retries, after 1 s, 2 s, 4 s …; 410 ends the subscription itself."""
    if outcome.succeeded:
        return Verdict(DELIVERED)
    if outcome.http_status == GONE:
        return Verdict(DEAD, disable=True)
    if failed_before >= retry_num:
        return Verdict(DEAD)
    # an exponent beyond twelve is past the cap anyway
    return Verdict(PENDING, min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(failed_before, 12)))


def next_due(connection: Connection, moment: datetime) -> datetime | None:
    """When the next attempt that nobody is making is due; None where none waits."""
    unmade = and_(_delivery.c.status == PENDING, unleased(moment))
    # ordered, so that the index ends the search at the first; a minimum would look at all that wait
    query = select(_delivery.c.next_attempt_at).where(unmade).order_by(_delivery.c.next_attempt_at).limit(1)
    return connection.execute(query).scalar_one_or_none()


def waiting(connection: Connection, *, moment: datetime, without: Collection[str], limit: int) -> list[tuple[int, str]]:
    """The first deliveries that are due, each with its callback; those to the callbacks `without` are left out."""
    query = select(_delivery.c.id, _delivery.c.callback_url).where(_due(moment)).order_by(*_IN_ORDER).limit(limit)
    if without:
        query = query.where(_delivery.c.callback_url.not_in(without))
    return [(row.id, row.callback_url) for row in connection.execute(query)]


def claim_due(
    connection: Connection, ids: Sequence[int], *, moment: datetime, lease: str, seconds: float
) -> list[Claimed]:
    """Those of the deliveries that are still due become ours.

    A delivery whose lease ran out is claimed again: the attempt that never ended is marked as lost.
    """
    rows = claim(
        connection,
        _delivery,
        where=and_(_delivery.c.id.in_(ids), _due(moment)),
        order_by=_IN_ORDER,
        limit=len(ids),
        values={"lease_owner": lease, "leased_until": moment + timedelta(seconds=seconds)},
    )
    if not rows:
        return []
    wanted = still_wanted(connection, rows)
    if unwanted := [row.id for row in rows if row.id not in wanted]:
        _give_up(connection, unwanted, moment)
    return _started(connection, [row for row in rows if row.id in wanted], lease, moment)


def settle(connection: Connection, claimed: Claimed, outcome: Outcome, *, ended: datetime) -> Verdict | None:
    """Records an attempt and what follows; None where the lease was lost and another's attempt decides."""
    mine = and_(_delivery.c.id == claimed.delivery_id, _delivery.c.lease_owner == claimed.lease)
    row = connection.execute(select(_delivery).where(mine, _delivery.c.status == PENDING).with_for_update()).first()
    connection.execute(
        update(_attempt)
        .where(_attempt.c.delivery_id == claimed.delivery_id, _attempt.c.attempt_no == claimed.attempt_no)
        .values(
            latency_ms=outcome.latency_ms,
            http_status=outcome.http_status,
            outcome=SUCCEEDED if outcome.succeeded else FAILED,
            error=outcome.error,
            answer=outcome.answer,
        )
    )
    if row is None:
        return None
    verdict = judge(outcome, failed_before=row.attempts, retry_num=row.retry_num)
    connection.execute(
        update(_delivery)
        .where(mine)
        .values(
            status=verdict.status,
            attempts=row.attempts + 1,
            next_attempt_at=None if verdict.delay_s is None else ended + timedelta(seconds=verdict.delay_s),
            lease_owner=None,
            leased_until=None,
            last_error=None if outcome.succeeded else outcome.error,
            finished_at=ended if verdict.delay_s is None else None,
        )
    )
    if verdict.disable:
        table = metrics_webhook_subscription
        connection.execute(
            update(table)
            .where(table.c.id.in_(row.subscription_ids))
            .values(status=DISABLED, disabled_reason=f"the receiver answered {GONE} to {row.webhook_id}")
        )
    return verdict


def _due(moment: datetime) -> ColumnElement[bool]:
    return and_(_delivery.c.status == PENDING, _delivery.c.next_attempt_at <= moment, unleased(moment))


def _started(connection: Connection, rows: Sequence[Row[Any]], lease: str, moment: datetime) -> list[Claimed]:
    """Takes the next number of each and writes it down before anything is sent."""
    if not rows:
        return []
    ids = [row.id for row in rows]
    connection.execute(
        update(_attempt)
        .where(_attempt.c.delivery_id.in_(ids), _attempt.c.outcome == STARTED)
        .values(outcome=LOST, error=INTERRUPTED)
    )
    numbers = select(_attempt.c.delivery_id, func.max(_attempt.c.attempt_no)).where(_attempt.c.delivery_id.in_(ids))
    last = {row[0]: row[1] for row in connection.execute(numbers.group_by(_attempt.c.delivery_id))}
    claimed = [Claimed(row.id, last.get(row.id, 0) + 1, lease, _message(row)) for row in rows]
    connection.execute(
        insert(_attempt).values(
            [
                {
                    "delivery_id": one.delivery_id,
                    "attempt_no": one.attempt_no,
                    "started_at": moment,
                    "outcome": STARTED,
                }
                for one in claimed
            ]
        )
    )
    return claimed


def _give_up(connection: Connection, ids: Sequence[int], moment: datetime) -> None:
    connection.execute(
        update(_delivery)
        .where(_delivery.c.id.in_(ids))
        .values(
            status=DEAD,
            next_attempt_at=None,
            lease_owner=None,
            leased_until=None,
            last_error=UNWANTED,
            finished_at=moment,
        )
    )


def _message(row: Any) -> Message:
    return Message(
        webhook_id=row.webhook_id,
        callback_url=row.callback_url,
        secret=row.secret,
        signing_secret=row.signing_secret,
        body=row.body,
        event_time=row.event_time,
    )

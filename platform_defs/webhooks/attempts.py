"""Attempts in the database: a sender claims a delivery under a lease, and records what the receiver answered."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, select, update

from platform_defs.store.claim import claim
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery
from platform_defs.webhooks.deliveries import DEAD, DELIVERED, PENDING, has_no_lease, wanted_deliveries
from platform_defs.webhooks.recipients import disable_subscriptions
from platform_defs.webhooks.request import DeliveryContent

FIRST_DELAY_S = 1
MAX_DELAY_S = 3600
# HTTP "Gone": the receiver wants no further deliveries
GONE = 410
# reasons in `last_error` of a delivery and in `error` of an attempt
UNWANTED = "every subscription of it was disabled or removed"
INTERRUPTED = "the sender ended before the answer came"

# outcomes of an attempt as its row has them
STARTED = "STARTED"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
LOST = "LOST"

_delivery = metrics_webhook_delivery
_attempt = metrics_webhook_attempt
_IN_ORDER = (_delivery.c.next_attempt_at, _delivery.c.id)


@dataclass(frozen=True)
class ClaimedAttempt:
    """An attempt that this sender must make; its row, with its number, is committed before anything is sent."""

    delivery_id: int
    attempt_no: int
    lease: str
    content: DeliveryContent


@dataclass(frozen=True)
class AttemptResult:
    """The receiver's status and the beginning of its answer, or the error if there was no answer."""

    http_status: int | None
    latency_ms: int
    error: str | None = None
    answer: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.http_status is not None and 200 <= self.http_status < 300


@dataclass(frozen=True)
class DeliveryDecision:
    """The delivery's next status; `delay_s` is the pause before the next attempt, None if there is none."""

    status: str
    delay_s: int | None = None
    disable_subscriptions: bool = False


def decide_delivery(result: AttemptResult, *, failed_before: int, retry_num: int) -> DeliveryDecision:
    """Allows one attempt plus `retry_num` retries, after 1 s, 2 s, 4 s …; a 410 disables the subscriptions too."""
    if result.succeeded:
        return DeliveryDecision(DELIVERED)
    if result.http_status == GONE:
        return DeliveryDecision(DEAD, disable_subscriptions=True)
    if failed_before >= retry_num:
        return DeliveryDecision(DEAD)
    # 2 ** 12 seconds are more than the longest delay already
    return DeliveryDecision(PENDING, min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(failed_before, 12)))


def next_due(connection: Connection, moment: datetime) -> datetime | None:
    """When the next attempt is due that no sender has leased; None if no delivery waits."""
    unleased = and_(_delivery.c.status == PENDING, has_no_lease(moment))
    # ORDER BY … LIMIT 1 reads one entry of the index, where MIN would read all pending deliveries
    query = select(_delivery.c.next_attempt_at).where(unleased).order_by(_delivery.c.next_attempt_at).limit(1)
    return connection.execute(query).scalar_one_or_none()


def due_deliveries(
    connection: Connection, *, moment: datetime, without: Collection[str], limit: int
) -> list[tuple[int, str]]:
    """The first (delivery id, callback) that are due, leaving out deliveries to the callbacks in `without`."""
    query = select(_delivery.c.id, _delivery.c.callback_url).where(_is_due(moment)).order_by(*_IN_ORDER).limit(limit)
    if without:
        query = query.where(_delivery.c.callback_url.not_in(without))
    return [(row.id, row.callback_url) for row in connection.execute(query)]


def claim_attempts(
    connection: Connection, ids: Sequence[int], *, moment: datetime, lease: str, seconds: float
) -> list[ClaimedAttempt]:
    """Claims the deliveries among `ids` that are still due, and starts an attempt of each.

    A delivery whose lease ran out is claimed again, and its attempt that never ended is marked as lost.
    """
    rows = claim(
        connection,
        _delivery,
        where=and_(_delivery.c.id.in_(ids), _is_due(moment)),
        order_by=_IN_ORDER,
        limit=len(ids),
        values={"lease_owner": lease, "leased_until": moment + timedelta(seconds=seconds)},
    )
    if not rows:
        return []
    wanted = wanted_deliveries(connection, rows)
    if unwanted := [row.id for row in rows if row.id not in wanted]:
        _give_up(connection, unwanted, moment)
    return _start_attempts(connection, [row for row in rows if row.id in wanted], lease, moment)


def record_result(
    connection: Connection, claimed: ClaimedAttempt, result: AttemptResult, *, ended: datetime
) -> DeliveryDecision | None:
    """Records the result and the decision that follows; None if the lease was lost, since its new owner decides."""
    mine = and_(_delivery.c.id == claimed.delivery_id, _delivery.c.lease_owner == claimed.lease)
    row = connection.execute(select(_delivery).where(mine, _delivery.c.status == PENDING).with_for_update()).first()
    connection.execute(
        update(_attempt)
        .where(_attempt.c.delivery_id == claimed.delivery_id, _attempt.c.attempt_no == claimed.attempt_no)
        .values(
            latency_ms=result.latency_ms,
            http_status=result.http_status,
            outcome=SUCCEEDED if result.succeeded else FAILED,
            error=result.error,
            answer=result.answer,
        )
    )
    if row is None:
        return None
    decision = decide_delivery(result, failed_before=row.attempts, retry_num=row.retry_num)
    connection.execute(
        update(_delivery)
        .where(mine)
        .values(
            status=decision.status,
            attempts=row.attempts + 1,
            next_attempt_at=None if decision.delay_s is None else ended + timedelta(seconds=decision.delay_s),
            lease_owner=None,
            leased_until=None,
            last_error=None if result.succeeded else result.error,
            finished_at=ended if decision.delay_s is None else None,
        )
    )
    if decision.disable_subscriptions:
        reason = f"the receiver answered {GONE} to {row.webhook_id}"
        disable_subscriptions(connection, row.subscription_ids, row.callback_url, reason)
    return decision


def _is_due(moment: datetime) -> ColumnElement[bool]:
    return and_(_delivery.c.status == PENDING, _delivery.c.next_attempt_at <= moment, has_no_lease(moment))


def _start_attempts(
    connection: Connection, rows: Sequence[Row[Any]], lease: str, moment: datetime
) -> list[ClaimedAttempt]:
    """Writes the next attempt of each delivery before anything is sent."""
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
    claimed = [ClaimedAttempt(row.id, last.get(row.id, 0) + 1, lease, _content(row)) for row in rows]
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


def _content(row: Any) -> DeliveryContent:
    return DeliveryContent(
        webhook_id=row.webhook_id,
        callback_url=row.callback_url,
        secret=row.secret,
        signing_secret=row.signing_secret,
        body=row.body,
        event_time=row.event_time,
    )

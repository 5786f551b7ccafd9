"""Recipients of deliveries: enabled subscriptions that agree in callback, retries, secrets and team share one delivery.

What a subscription is *for* (a KPI, say) is known only to the system that wrote it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, select, update

from platform_defs.canonical import canonical_hash
from platform_defs.store.tables.webhooks import metrics_webhook_subscription

ENABLED = "1"
DISABLED = "0"
MAX_REASON = 255

_table = metrics_webhook_subscription


@dataclass(frozen=True)
class Recipient:
    """Where one delivery goes; the secrets are as they are stored: references or encrypted.

    `group_hash` identifies the recipient: an event is written for it only once. A system that makes recipients without
    subscriptions adds its own name to what it hashes, because events of two systems may have the same id.
    """

    group_hash: str
    callback_url: str
    secret: str | None = field(repr=False)
    signing_secret: str | None = field(repr=False)
    retry_num: int
    subscription_ids: tuple[int, ...]


def group_subscriptions(rows: Iterable[Row[Any]]) -> list[Recipient]:
    """One recipient for each group of subscriptions that agree; `rows` are whole rows of the table of subscriptions."""
    groups: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        groups[group_hash(row)].append(row)
    return [
        Recipient(
            group_hash=group,
            callback_url=members[0].callback_url,
            secret=members[0].secret,
            signing_secret=members[0].signing_secret,
            retry_num=members[0].retry_num,
            subscription_ids=tuple(member.id for member in members),
        )
        for group, members in sorted(groups.items())
    ]


def group_hash(row: Row[Any]) -> str:
    """The team is part of it: two teams never share a delivery, so that neither sees the other's subscriptions."""
    return canonical_hash([row.callback_url, row.retry_num, row.secret, row.signing_secret, row.team_name])


def group_hashes_of_team(connection: Connection, team: str) -> list[str]:
    """The groups that the team's subscriptions belong to now, disabled ones included."""
    query = select(_table).where(_table.c.team_name == team)
    return [group_hash(row) for row in connection.execute(query)]


def enabled_among(connection: Connection, subscription_ids: Collection[int]) -> set[int]:
    if not subscription_ids:
        return set()
    query = select(_table.c.id).where(_table.c.id.in_(subscription_ids), _table.c.status == ENABLED)
    return set(connection.execute(query).scalars())


def disable_subscriptions(
    connection: Connection, subscription_ids: Collection[int], callback_url: str, reason: str
) -> None:
    """Disables those of the subscriptions that still have this callback: another program may have changed one."""
    values = {"status": DISABLED, "disabled_reason": reason[:MAX_REASON]}
    same = (_table.c.id.in_(subscription_ids)) & (_table.c.callback_url == callback_url)
    connection.execute(update(_table).where(same).values(values))

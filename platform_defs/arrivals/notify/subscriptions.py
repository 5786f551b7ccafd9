"""Subscriptions to KPIs: adds, lists, disables, enables and removes them; with `team` only those of that team."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, insert, select, true, update

from platform_defs.arrivals.errors import InvalidSubscription, UnknownSubscription
from platform_defs.arrivals.notify.kpi_message import MESSAGE_FIELDS
from platform_defs.store.engine import read, transact
from platform_defs.store.repeating import once
from platform_defs.store.tables.arrivals import metrics_kpi
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.webhooks import secrets
from platform_defs.webhooks.addresses import Network, check_url
from platform_defs.webhooks.encryption import Encryption
from platform_defs.webhooks.environment_names import TeamReference
from platform_defs.webhooks.errors import SecretError, UrlRefused
from platform_defs.webhooks.recipients import DISABLED, ENABLED, MAX_REASON

DEFAULT_RETRIES = 3
MAX_RETRIES = 100
MAX_NAME = 64
MAX_URL = 512

_table = metrics_webhook_subscription
MayReference = Callable[[str], bool]


@dataclass(frozen=True)
class NewSubscription:
    """A subscription as somebody asks for it; its secrets are literals or references (`env:NAME`)."""

    kpi_id: str
    callback_url: str
    secret: str | None = field(default=None, repr=False)
    signing_secret: str | None = field(default=None, repr=False)
    retry_num: int = DEFAULT_RETRIES
    team_name: str | None = None
    user_id: str | None = None


@dataclass(frozen=True)
class Subscription:
    """A subscription as a listing may show it: literal secrets are masked, references are readable."""

    id: int
    kpi_id: str
    callback_url: str
    secret: str | None
    signing_secret: str | None
    retry_num: int
    status: str
    disabled_reason: str | None
    team_name: str | None
    user_id: str | None
    created_at: datetime


def add(
    engine: Engine,
    new: NewSubscription,
    *,
    encryption: Encryption,
    allow: Sequence[Network],
    may_reference: MayReference | None = None,
) -> Subscription:
    """Stores a subscription with its secrets encrypted, or raises InvalidSubscription.

    `may_reference` says which environment variables this caller's secrets may refer to; None means any.
    """
    row = _row_to_store(new, encryption, allow, may_reference)

    def work(connection: Connection) -> int:
        known = connection.execute(select(metrics_kpi.c.id).where(metrics_kpi.c.kpi_id == new.kpi_id)).first()
        if known is None:
            raise InvalidSubscription("kpiId", f"no KPI has the id {new.kpi_id!r}; `platform models load` brings it")
        return connection.execute(insert(_table).values(row)).lastrowid

    def is_added(connection: Connection, added: int) -> bool:
        return connection.execute(select(_table.c.id).filter_by(id=added, **row)).first() is not None

    return find(engine, transact(engine, once(work, is_added)))


def list_all(engine: Engine, *, team: str | None = None) -> list[Subscription]:
    """The subscriptions of a team, or of everybody."""
    query = select(_table).where(_belongs_to(team)).order_by(_table.c.id)
    return [_subscription(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def find(engine: Engine, subscription_id: int, *, team: str | None = None) -> Subscription:
    query = select(_table).where(_has_id(subscription_id, team))
    row = read(engine, lambda connection: connection.execute(query).one_or_none())
    if row is None:
        raise UnknownSubscription(subscription_id)
    return _subscription(row)


def references_of_teams(engine: Engine) -> list[TeamReference]:
    """The environment variables to which enabled subscriptions of tenants refer."""
    query = select(_table.c.id, _table.c.team_name, _table.c.secret, _table.c.signing_secret).where(
        _table.c.team_name.is_not(None), _table.c.status == ENABLED
    )
    return [
        TeamReference(row.id, row.team_name, name)
        for row in read(engine, lambda connection: connection.execute(query).all())
        for stored in (row.secret, row.signing_secret)
        if stored is not None and (name := secrets.referenced_variable(stored)) is not None
    ]


def disable(engine: Engine, subscription_id: int, *, reason: str, team: str | None = None) -> Subscription:
    """Pending deliveries that only this subscription wants are not sent any more."""
    return _change(engine, subscription_id, team, {"status": DISABLED, "disabled_reason": reason[:MAX_REASON]})


def enable(engine: Engine, subscription_id: int, *, team: str | None = None) -> Subscription:
    return _change(engine, subscription_id, team, {"status": ENABLED, "disabled_reason": None})


def remove(engine: Engine, subscription_id: int, *, team: str | None = None) -> None:
    def work(connection: Connection) -> int:
        return connection.execute(delete(_table).where(_has_id(subscription_id, team))).rowcount

    def is_removed(connection: Connection, _: int) -> bool:
        return connection.execute(select(_table.c.id).where(_has_id(subscription_id, team))).first() is None

    if transact(engine, once(work, is_removed)) == 0:
        raise UnknownSubscription(subscription_id)


def check_callback(url: str, *, allow: Sequence[Network]) -> None:
    """Raises InvalidSubscription if the URL cannot be stored or must not be called."""
    if len(url) > MAX_URL:
        raise InvalidSubscription("callbackUrl", f"expected at most {MAX_URL} characters, got {len(url)}")
    try:
        check_url(url, allow=allow)
    except UrlRefused as error:
        raise InvalidSubscription("callbackUrl", str(error)) from None


def json_fields(subscription: Subscription) -> dict[str, Any]:
    """A subscription as HTTP and `--json` show it."""
    fields = asdict(subscription) | {"created_at": subscription.created_at.isoformat()}
    return {_camel(name): value for name, value in fields.items()}


def _row_to_store(
    new: NewSubscription, encryption: Encryption, allow: Sequence[Network], may_reference: MayReference | None
) -> dict[str, Any]:
    if not new.kpi_id or len(new.kpi_id) > MAX_NAME:
        raise InvalidSubscription("kpiId", f"expected 1 to {MAX_NAME} characters")
    if not 0 <= new.retry_num <= MAX_RETRIES:
        raise InvalidSubscription("retryNum", f"expected 0 to {MAX_RETRIES}, got {new.retry_num}")
    for name, value in (("teamName", new.team_name), ("userId", new.user_id)):
        if value is not None and not 0 < len(value) <= MAX_NAME:
            raise InvalidSubscription(name, f"expected 1 to {MAX_NAME} characters")
    url = new.callback_url.strip()
    check_callback(url, allow=allow)
    return {
        "kpi_id": new.kpi_id,
        "callback_url": url,
        "secret": _storable(
            "secret",
            new.secret,
            lambda text: secrets.storable_secret(text, encryption, message_fields=MESSAGE_FIELDS),
            may_reference,
        ),
        "signing_secret": _storable(
            "signingSecret",
            new.signing_secret,
            lambda text: secrets.storable_signing_secret(text, encryption),
            may_reference,
        ),
        "retry_num": new.retry_num,
        "status": ENABLED,
        "team_name": new.team_name,
        "user_id": new.user_id,
    }


def _storable(
    field_name: str, text: str | None, storable: Callable[[str], str], may_reference: MayReference | None
) -> str | None:
    if text is None:
        return None
    try:
        stored = storable(text)
    except SecretError as error:
        raise InvalidSubscription(field_name, str(error)) from None
    name = secrets.referenced_variable(stored)
    if name is not None and may_reference is not None and not may_reference(name):
        raise InvalidSubscription(
            field_name,
            f"a subscription made with this key must not refer to the variable {name}; a tenant's key may refer to"
            " WEBHOOK_<CODE>__*, a key without tenant to what PLATFORM_WEBHOOK_ENV names",
        )
    return stored


def _change(engine: Engine, subscription_id: int, team: str | None, values: dict[str, Any]) -> Subscription:
    statement = update(_table).where(_has_id(subscription_id, team)).values(values)
    transact(engine, lambda connection: connection.execute(statement))
    return find(engine, subscription_id, team=team)


def _belongs_to(team: str | None) -> ColumnElement[bool]:
    return true() if team is None else _table.c.team_name == team


def _has_id(subscription_id: int, team: str | None) -> ColumnElement[bool]:
    return and_(_table.c.id == subscription_id, _belongs_to(team))


def _subscription(row: Any) -> Subscription:
    return Subscription(
        id=row.id,
        kpi_id=row.kpi_id,
        callback_url=row.callback_url,
        secret=None if row.secret is None else secrets.mask_secret(row.secret),
        signing_secret=None if row.signing_secret is None else secrets.mask_value(row.signing_secret),
        retry_num=row.retry_num,
        status=row.status,
        disabled_reason=row.disabled_reason,
        team_name=row.team_name,
        user_id=row.user_id,
        created_at=row.created_at,
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

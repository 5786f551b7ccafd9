"""Subscriptions: which callback hears of a KPI, and how a team adds, sees, disables and removes its own."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, insert, select, true, update

from platform_defs.arrivals.errors import SecretError
from platform_defs.canonical import canonical_hash
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_kpi
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.webhooks import secrets
from platform_defs.webhooks.addresses import Network, check_url
from platform_defs.webhooks.encryption import Vault
from platform_defs.webhooks.errors import InvalidSubscription, UnknownSubscription

ENABLED = "1"
DISABLED = "0"
DEFAULT_RETRIES = 3
MAX_RETRIES = 100
MAX_NAME = 64

_table = metrics_webhook_subscription
MayRefer = Callable[[str], bool]


@dataclass(frozen=True)
class Wanted:
    """A subscription as somebody asks for it; secrets are literals or references."""

    kpi_id: str
    callback_url: str
    secret: str | None = field(default=None, repr=False)
    signing_secret: str | None = field(default=None, repr=False)
    retry_num: int = DEFAULT_RETRIES
    team_name: str | None = None
    user_id: str | None = None


@dataclass(frozen=True)
class Subscription:
    """A subscription as it may be shown: secrets masked, references readable."""

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
    engine: Engine, wanted: Wanted, *, vault: Vault, allow: Sequence[Network], may_refer: MayRefer | None = None
) -> Subscription:
    """Stores it with its secrets encrypted; `may_refer` says which variables this caller may name, None means any."""
    row = _checked(wanted, vault, allow, may_refer)

    def work(connection: Connection) -> int:
        known = connection.execute(select(metrics_kpi.c.id).where(metrics_kpi.c.kpi_id == wanted.kpi_id)).first()
        if known is None:
            raise InvalidSubscription("kpiId", f"no KPI has the id {wanted.kpi_id!r}; `platform models load` brings it")
        return connection.execute(insert(_table).values(row)).lastrowid

    added = transact(engine, work)
    return find(engine, added)


def every(engine: Engine, *, team: str | None = None) -> list[Subscription]:
    """The subscriptions of a team, or of all."""
    query = select(_table).where(_of(team)).order_by(_table.c.id)
    return [_shown(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def find(engine: Engine, subscription_id: int, *, team: str | None = None) -> Subscription:
    query = select(_table).where(_one(subscription_id, team))
    row = read(engine, lambda connection: connection.execute(query).one_or_none())
    if row is None:
        raise UnknownSubscription(subscription_id)
    return _shown(row)


def disable(engine: Engine, subscription_id: int, *, reason: str, team: str | None = None) -> Subscription:
    """What waits for it alone is not sent any more."""
    return _change(engine, subscription_id, team, {"status": DISABLED, "disabled_reason": reason[:255]})


def enable(engine: Engine, subscription_id: int, *, team: str | None = None) -> Subscription:
    return _change(engine, subscription_id, team, {"status": ENABLED, "disabled_reason": None})


def remove(engine: Engine, subscription_id: int, *, team: str | None = None) -> None:
    statement = delete(_table).where(_one(subscription_id, team))
    if transact(engine, lambda connection: connection.execute(statement).rowcount) == 0:
        raise UnknownSubscription(subscription_id)


def group_hash(row: Any) -> str:
    """Subscriptions that agree in this share one delivery; teams never share, so that neither sees the other's."""
    return canonical_hash([row.callback_url, row.retry_num, row.secret, row.signing_secret, row.team_name])


def group_hashes(connection: Connection, team: str | None) -> list[str]:
    return [group_hash(row) for row in connection.execute(select(_table).where(_of(team)))]


def wire(subscription: Subscription) -> dict[str, Any]:
    """As HTTP and `--json` show it."""
    fields = asdict(subscription) | {"created_at": subscription.created_at.isoformat()}
    return {_camel(name): value for name, value in fields.items()}


def _checked(wanted: Wanted, vault: Vault, allow: Sequence[Network], may_refer: MayRefer | None) -> dict[str, Any]:
    if not wanted.kpi_id or len(wanted.kpi_id) > MAX_NAME:
        raise InvalidSubscription("kpiId", f"expected 1 to {MAX_NAME} characters")
    if not 0 <= wanted.retry_num <= MAX_RETRIES:
        raise InvalidSubscription("retryNum", f"expected 0 to {MAX_RETRIES}, got {wanted.retry_num}")
    for name, value in (("teamName", wanted.team_name), ("userId", wanted.user_id)):
        if value is not None and not 0 < len(value) <= MAX_NAME:
            raise InvalidSubscription(name, f"expected 1 to {MAX_NAME} characters")
    url = wanted.callback_url.strip()
    check_url(url, allow=allow)
    return {
        "kpi_id": wanted.kpi_id,
        "callback_url": url,
        "secret": _stored("secret", wanted.secret, lambda text: secrets.stored(text, vault), may_refer),
        "signing_secret": _stored(
            "signingSecret", wanted.signing_secret, lambda text: secrets.stored_signing(text, vault), may_refer
        ),
        "retry_num": wanted.retry_num,
        "status": ENABLED,
        "team_name": wanted.team_name,
        "user_id": wanted.user_id,
    }


def _stored(field_name: str, text: str | None, keep: Callable[[str], str], may_refer: MayRefer | None) -> str | None:
    if text is None:
        return None
    try:
        kept = keep(text)
    except SecretError as error:
        raise InvalidSubscription(field_name, str(error)) from None
    name = secrets.reference_in(kept)
    if name is not None and may_refer is not None and not may_refer(name):
        raise InvalidSubscription(field_name, f"the variable {name} is not one that PLATFORM_WEBHOOK_ENV names")
    return kept


def _change(engine: Engine, subscription_id: int, team: str | None, values: dict[str, Any]) -> Subscription:
    statement = update(_table).where(_one(subscription_id, team)).values(values)
    transact(engine, lambda connection: connection.execute(statement))
    return find(engine, subscription_id, team=team)


def _of(team: str | None) -> ColumnElement[bool]:
    return true() if team is None else _table.c.team_name == team


def _one(subscription_id: int, team: str | None) -> ColumnElement[bool]:
    return and_(_table.c.id == subscription_id, _of(team))


def _shown(row: Any) -> Subscription:
    return Subscription(
        id=row.id,
        kpi_id=row.kpi_id,
        callback_url=row.callback_url,
        secret=None if row.secret is None else secrets.masked(row.secret),
        signing_secret=None if row.signing_secret is None else secrets.masked_value(row.signing_secret),
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

"""Webhook subscriptions and deliveries over HTTP, under /api/open/kpi/webhooks; a tenant's key sees only its own."""

import logging
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.alias_generators import to_camel
from sqlalchemy import Engine

from platform_defs.access.principal import Principal
from platform_defs.access.tenants import list_tenants
from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.bodies import JsonBody
from platform_defs.api.http.errors import ApiError
from platform_defs.api.http.paths import path_id
from platform_defs.arrivals.errors import InvalidSubscription, UnknownSubscription
from platform_defs.arrivals.notify import subscriptions
from platform_defs.arrivals.notify.subscriptions import DEFAULT_RETRIES, MAX_RETRIES, NewSubscription
from platform_defs.connections import explain
from platform_defs.settings import Settings
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.encryption import encryption_from
from platform_defs.webhooks.environment_names import may_reference_patterns, may_tenant_reference
from platform_defs.webhooks.errors import NoKey, NotRedeliverable, UnknownDelivery

log = logging.getLogger(__name__)

SCOPE = "webhooks:write"
BASE = "/api/open/kpi/webhooks"
ONE = f"{BASE}/{path_id('subscription_id')}"
DELIVERIES = BASE + "/deliveries"
MAX_ID = 2**63 - 1

T = TypeVar("T")
Caller = Annotated[Principal, Depends(RequiresScope(SCOPE))]

router = APIRouter(tags=["webhooks"])


class SubscriptionBody(BaseModel):
    """The body of a POST."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)

    kpi_id: str = Field(description="The KPI whose changes are notified", examples=["demo_revenue"])
    callback_url: str = Field(
        description="Where notifications are posted to: http or https", examples=["https://example.com/hook"]
    )
    secret: SecretStr | None = Field(
        None,
        description="`Query,key,value`, `Header,key,value` or `Body,json,{…}`; the value may be env:NAME,"
        " of a variable WEBHOOK_<CODE>__… of the key's tenant",
    )
    signing_secret: SecretStr | None = Field(None, description="`whsec_…` or env:NAME: signs as Standard Webhooks does")
    retry_num: int = Field(DEFAULT_RETRIES, ge=0, le=MAX_RETRIES, description="Retries after the first attempt")
    team_name: str | None = Field(None, description="Code of the tenant; a tenant's key may only name its own")
    user_id: str | None = None


@router.post(
    BASE,
    status_code=201,
    response_model=None,
    summary="Subscribe a callback to a KPI",
    responses={
        400: {"description": "Names the field and what was expected"},
        503: {"description": "The platform has no key to encrypt a literal secret with"},
    },
    openapi_extra={
        **openapi_security(SCOPE),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": SubscriptionBody.model_json_schema()}},
        },
    },
)
def subscribe(request: Request, caller: Caller, body: JsonBody) -> dict[str, Any]:
    settings: Settings = request.app.state.settings
    new = _new_subscription(body, caller)
    return _with_http_status(
        lambda: subscriptions.json_fields(
            subscriptions.add(
                _engine(request),
                new,
                encryption=encryption_from(settings),
                allow=settings.webhook_networks,
                may_reference=_may_reference(_engine(request), settings, caller),
            )
        )
    )


@router.get(
    BASE, response_model=None, summary="List subscriptions, secrets masked", openapi_extra=openapi_security(SCOPE)
)
def list_subscriptions(request: Request, caller: Caller) -> dict[str, Any]:
    found = subscriptions.list_all(_engine(request), team=_team(caller))
    return {"subscriptions": [subscriptions.json_fields(subscription) for subscription in found]}


@router.get(
    DELIVERIES,
    response_model=None,
    summary="List deliveries and their attempts, the newest first",
    openapi_extra=openapi_security(SCOPE),
)
def list_deliveries(
    request: Request,
    caller: Caller,
    status: Annotated[str | None, Query(description="pending, delivered or dead")] = None,
    before: Annotated[int | None, Query(ge=1, le=MAX_ID, description="Only ids below this one: the next page")] = None,
    limit: Annotated[int, Query(ge=1, le=deliveries.MAX_PAGE)] = deliveries.PAGE,
) -> dict[str, Any]:
    if status is not None and status.upper() not in deliveries.STATUSES:
        raise ApiError(400, "status: expected pending, delivered or dead")
    found = deliveries.list_newest(
        _engine(request), status=status and status.upper(), team=_team(caller), before=before, limit=limit
    )
    return {"deliveries": [deliveries.json_fields(delivery) for delivery in found]}


@router.post(
    f"{DELIVERIES}/{path_id('delivery_id')}:redeliver",
    status_code=202,
    response_model=None,
    summary="Send a dead letter again: the same id and body",
    responses={404: {"description": "No such delivery"}, 409: {"description": "It is not a dead letter"}},
    openapi_extra=openapi_security(SCOPE),
)
def redeliver(request: Request, caller: Caller, delivery_id: str) -> dict[str, Any]:
    number = _parse_id(delivery_id, "delivery")
    return _with_http_status(
        lambda: deliveries.json_fields(deliveries.redeliver(_engine(request), number, team=_team(caller)))
    )


@router.post(
    ONE + ":disable",
    response_model=None,
    summary="Stop a subscription",
    responses={404: {"description": "No such subscription"}},
    openapi_extra=openapi_security(SCOPE),
)
def disable(request: Request, caller: Caller, subscription_id: str) -> dict[str, Any]:
    number = _parse_id(subscription_id, "subscription")
    return _with_http_status(
        lambda: subscriptions.json_fields(
            subscriptions.disable(_engine(request), number, reason=f"disabled by {caller.name}", team=_team(caller))
        )
    )


@router.post(
    ONE + ":enable",
    response_model=None,
    summary="Let a disabled subscription hear of changes again",
    responses={404: {"description": "No such subscription"}},
    openapi_extra=openapi_security(SCOPE),
)
def enable(request: Request, caller: Caller, subscription_id: str) -> dict[str, Any]:
    number = _parse_id(subscription_id, "subscription")
    return _with_http_status(
        lambda: subscriptions.json_fields(subscriptions.enable(_engine(request), number, team=_team(caller)))
    )


@router.delete(
    ONE,
    status_code=204,
    response_model=None,
    summary="Remove a subscription and its secrets",
    responses={404: {"description": "No such subscription"}},
    openapi_extra=openapi_security(SCOPE),
)
def remove(request: Request, caller: Caller, subscription_id: str) -> None:
    number = _parse_id(subscription_id, "subscription")
    _with_http_status(lambda: subscriptions.remove(_engine(request), number, team=_team(caller)))


def _engine(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


def _team(caller: Principal) -> str | None:
    return None if caller.tenant is None else caller.tenant.code


def _new_subscription(body: Any, caller: Principal) -> NewSubscription:
    try:
        asked = SubscriptionBody.model_validate(body)
    except ValidationError as error:
        # the message leaves out the input, which may be a secret in the wrong field
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise ApiError(
            400, "; ".join(f"{'.'.join(map(str, p['loc'])) or 'body'}: {p['msg']}" for p in problems)
        ) from None
    team = _team(caller)
    if team is not None and asked.team_name not in (None, team):
        raise ApiError(400, f"teamName: expected {team}, the tenant of this key, or none at all")
    return NewSubscription(
        kpi_id=asked.kpi_id,
        callback_url=asked.callback_url,
        secret=_secret_value(asked.secret),
        signing_secret=_secret_value(asked.signing_secret),
        retry_num=asked.retry_num,
        team_name=team or asked.team_name,
        user_id=asked.user_id,
    )


def _secret_value(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _may_reference(engine: Engine, settings: Settings, caller: Principal) -> Callable[[str], bool]:
    """Which environment variables a subscription made over HTTP may have sent to its callback.

    The right to write subscriptions is no right to read the environment. The tenant is that of the key: anybody may
    write any teamName.
    """
    if caller.tenant is None:
        return may_reference_patterns(settings.webhook_env)
    return may_tenant_reference(caller.tenant.code, [tenant.code for tenant in list_tenants(engine)])


def _parse_id(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_ID:
        raise ApiError(404, f"no {what} has the id {text}")
    return int(text)


def _with_http_status(work: Callable[[], T]) -> T:
    """Calls `work` and answers the errors of subscriptions and deliveries with 400, 404, 409 or 503."""
    try:
        return work()
    except InvalidSubscription as error:
        raise ApiError(400, str(error)) from None
    except (UnknownSubscription, UnknownDelivery) as error:
        raise ApiError(404, str(error)) from None
    except NotRedeliverable as error:
        raise ApiError(409, str(error)) from None
    except NoKey as error:
        log.warning("a subscription was refused: %s", explain(error))
        raise ApiError(503, str(error)) from None

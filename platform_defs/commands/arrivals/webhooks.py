"""`platform webhooks`: manages subscriptions to KPIs, lists deliveries, and has dead letters sent again."""

import sys
from typing import Any

import click

from platform_defs.arrivals.notify import subscriptions
from platform_defs.arrivals.notify.subscriptions import DEFAULT_RETRIES, MAX_RETRIES, NewSubscription, Subscription
from platform_defs.commands.tables import DatabaseId, json_option, limit_option, print_object, print_rows, result_option
from platform_defs.connections import open_database
from platform_defs.settings import Settings
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.encryption import encryption_from
from platform_defs.webhooks.recipients import ENABLED

BY_OPERATOR = "disabled by an operator"

_id = click.argument("subscription_id", metavar="ID", type=DatabaseId())


@click.group("webhooks")
def command() -> None:
    """Subscribe to KPIs, see deliveries, send dead letters again."""


@command.command("add")
@click.option("--kpi", "kpi_id", required=True, help="The KPI whose changes are notified.")
@click.option("--url", "callback_url", required=True, help="Where notifications are posted to: http or https.")
@click.option(
    "--secret",
    help="'Query,key,value', 'Header,key,value' or 'Body,json,{…}'. The value may be env:NAME; a literal is encrypted."
    " '-' reads it from stdin, which keeps it out of the shell's history.",
)
@click.option("--signing-secret", help="whsec_… or env:NAME: signs as Standard Webhooks does. '-' reads it from stdin.")
@click.option(
    *("--retry", "retry_num"),
    type=click.IntRange(0, MAX_RETRIES),
    default=DEFAULT_RETRIES,
    show_default=True,
    help="Retries after the first attempt.",
)
@click.option("--team", "team_name", help="Code of the tenant that the subscription belongs to.")
@click.option("--user", "user_id", help="Who asked for it.")
def add(secret: str | None, signing_secret: str | None, **fields: Any) -> None:
    """Subscribe a callback to a KPI; prints the subscription's id."""
    if secret == "-" and signing_secret == "-":
        raise click.UsageError("only one of --secret and --signing-secret can come from stdin")
    new = NewSubscription(secret=_read_secret(secret), signing_secret=_read_secret(signing_secret), **fields)
    settings = Settings.load()
    with open_database() as engine:
        added = subscriptions.add(engine, new, encryption=encryption_from(settings), allow=settings.webhook_networks)
    click.echo(added.id)


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List subscriptions; secrets are masked, references are not."""
    with open_database() as engine:
        found = subscriptions.list_all(engine)
    rows = [subscriptions.json_fields(one) if as_json else _readable_subscription(one) for one in found]
    print_rows(rows, as_json=as_json, nothing="no subscriptions yet; `platform webhooks add` adds one")


@command.command("disable")
@_id
def disable(subscription_id: int) -> None:
    """Stop a subscription. Pending deliveries that only it wants are not sent."""
    with open_database() as engine:
        subscriptions.disable(engine, subscription_id, reason=BY_OPERATOR)
    click.echo(f"subscription {subscription_id} disabled")


@command.command("enable")
@_id
def enable(subscription_id: int) -> None:
    """Let a disabled subscription hear of changes again."""
    with open_database() as engine:
        subscriptions.enable(engine, subscription_id)
    click.echo(f"subscription {subscription_id} enabled")


@command.command("remove")
@_id
def remove(subscription_id: int) -> None:
    """Remove a subscription and its secrets. Its deliveries stay on record."""
    with open_database() as engine:
        subscriptions.remove(engine, subscription_id)
    click.echo(f"subscription {subscription_id} removed")


@command.command("deliveries")
@click.option(
    "--status", type=click.Choice([status.lower() for status in deliveries.STATUSES]), help="Only those of this status."
)
@limit_option(deliveries.PAGE, deliveries.MAX_PAGE)
@json_option
def list_deliveries(status: str | None, limit: int, as_json: bool) -> None:
    """List deliveries, the newest first; --json has every attempt."""
    with open_database() as engine:
        found = deliveries.list_newest(engine, status=status and status.upper(), limit=limit)
    rows = [deliveries.json_fields(delivery) if as_json else _readable_fields(delivery) for delivery in found]
    print_rows(rows, as_json=as_json, nothing="no deliveries" + (f" that are {status}" if status else " yet"))


@command.command("redeliver")
@click.argument("delivery_id", metavar="[ID]", type=DatabaseId(), required=False)
@click.option("--all-dead", is_flag=True, help="Every dead letter that somebody still subscribes to.")
@result_option
def redeliver(delivery_id: int | None, all_dead: bool, as_json: bool) -> None:
    """Send a dead letter again. It has the same id and body, and all its attempts anew."""
    if (delivery_id is None) != all_dead:
        raise click.UsageError("expected an ID or --all-dead")
    with open_database() as engine:
        if delivery_id is None:
            count = deliveries.redeliver_all(engine)
            told = f"{count} dead letters will be sent again"
        else:
            deliveries.redeliver(engine, delivery_id)
            count, told = 1, f"delivery {delivery_id} will be sent again"
    if as_json:
        print_object({"redelivered": count})
        return
    click.echo(told)


def _read_secret(value: str | None) -> str | None:
    return sys.stdin.read().strip() if value == "-" else value


def _readable_subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "id": subscription.id,
        "kpi": subscription.kpi_id,
        "state": "enabled" if subscription.status == ENABLED else f"disabled: {subscription.disabled_reason}",
        "retries": subscription.retry_num,
        "team": subscription.team_name,
        "secret": subscription.secret,
        "signed": subscription.signing_secret is not None,
        "callback": subscription.callback_url,
    }


def _readable_fields(delivery: deliveries.Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "status": delivery.status.lower(),
        "model": delivery.subject,
        "opTime": delivery.batch,
        "attempts": len(delivery.attempts),
        "created": f"{delivery.created_at:%F %T}",
        "callback": delivery.callback_url,
        "last error": delivery.last_error,
    }

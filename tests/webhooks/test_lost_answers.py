"""A commit whose answer is lost is repeated: a subscription is made and removed once, a dead letter revived once."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from platform_defs.arrivals.errors import UnknownSubscription
from platform_defs.arrivals.notify import subscriptions
from platform_defs.store.tables.webhooks import metrics_webhook_delivery
from platform_defs.webhooks import deliveries
from tests.lost_answers import losing_answer
from tests.webhooks.receiver import notify, row_of, subscribe, with_kpis

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)

URL = "https://hooks.example/a"


def test_a_subscription_is_made_once_and_removed_once(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with losing_answer(engine):
        made = subscribe(engine, tmp_path, URL, secret="Header,X-Key,s3cret")
    assert subscriptions.list_all(engine) == [made]
    with losing_answer(engine):
        subscriptions.remove(engine, made.id)
    assert subscriptions.list_all(engine) == []
    with pytest.raises(UnknownSubscription):
        subscriptions.remove(engine, made.id)


def test_a_dead_letter_is_sent_again(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    subscribe(engine, tmp_path, URL)
    notify(engine)
    with engine.begin() as connection:
        connection.execute(update(metrics_webhook_delivery).values(status=deliveries.DEAD))
    with losing_answer(engine):
        revived = deliveries.redeliver(engine, row_of(engine, metrics_webhook_delivery).id)
    assert revived.status == deliveries.PENDING

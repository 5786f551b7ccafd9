"""What the end of a task writes: one delivery per group of subscriptions, once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select, update

from platform_defs.arrivals.errors import InvalidSubscription, UnknownSubscription
from platform_defs.arrivals.notify import subscriptions
from platform_defs.store.tables.webhooks import metrics_webhook_delivery, metrics_webhook_subscription
from platform_defs.webhooks import deliveries
from tests.webhooks.receiver import EVENT, notify, row_of, subscribe, with_kpis

URL = "https://hooks.example/a"


def rows(engine: Engine) -> list[Any]:
    table = metrics_webhook_delivery
    with engine.connect() as connection:
        return list(connection.execute(select(table).order_by(table.c.callback_url, table.c.id)))


def test_the_body_is_the_seeds_with_the_whole_closure_and_the_zone_of_the_deployment(
    engine: Engine, tmp_path: Path
) -> None:
    with_kpis(engine, {"KC2001": ["KD1001", "KD1002"], "KC2002": ["KC2001"], "KC9": ["KD9"]})
    subscribe(engine, tmp_path, URL, "KC2002")
    assert notify(engine) == 1
    row = row_of(engine, metrics_webhook_delivery)
    assert row.body == (
        '{"event":"KPI_UPDATED","modelId":"MODEL-01","opTime":"20251219",'
        '"affectedKpiIds":["KD1001","KD1002","KC2001","KC2002"],"timestamp":"2025-12-19T16:00:00+08:00"}'
    )
    assert (row.status, row.next_attempt_at, row.event_time) == ("PENDING", EVENT, EVENT)


def test_subscriptions_that_agree_share_a_delivery_and_the_others_do_not(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine, {"KC2001": ["KD1001"], "KC9": ["KD9"]})
    same = [
        subscribe(engine, tmp_path, URL, kpi, secret="Header,X-Key,s3cret", user_id=user).id
        for kpi, user in (("KD1001", "a"), ("KC2001", "b"), ("KC2001", "b"))
    ]
    others = [
        subscribe(engine, tmp_path, URL, secret="Header,X-Key,other"),
        subscribe(engine, tmp_path, URL, secret="Header,X-Key,s3cret", retry_num=5),
        subscribe(engine, tmp_path, URL, secret="Header,X-Key,s3cret", team_name="acme"),
        subscribe(engine, tmp_path, URL, secret="Header,X-Key,s3cret", signing_secret="env:SIGN"),
        subscribe(engine, tmp_path, URL + "b", secret="Header,X-Key,s3cret"),
    ]
    subscribe(engine, tmp_path, URL, "KC9")
    disabled = subscribe(engine, tmp_path, URL + "c")
    subscriptions.disable(engine, disabled.id, reason="test")
    assert notify(engine) == 6
    found = sorted(row.subscription_ids for row in rows(engine))
    assert found == sorted([same, *([other.id] for other in others)])


def test_the_same_task_again_changes_nothing_and_another_task_is_news(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    subscribe(engine, tmp_path, URL)
    notify(engine, task_id=1)
    first = rows(engine)
    notify(engine, task_id=1, at=EVENT + timedelta(seconds=5))
    assert rows(engine) == first
    notify(engine, task_id=2)
    assert len({row.webhook_id for row in rows(engine)}) == 2


def test_the_number_of_statements_does_not_grow_with_the_subscriptions(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine, {f"KC{n}": ["KD1001"] for n in range(300)})
    subscribe(engine, tmp_path, URL)
    with engine.begin() as connection:
        template = dict(connection.execute(select(metrics_webhook_subscription)).mappings().one())
        del template["id"]
        several = [template | {"kpi_id": f"KC{n}", "callback_url": f"{URL}/{n}"} for n in range(300)]
        connection.execute(metrics_webhook_subscription.insert(), several)
    statements: list[str] = []

    def count(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", count)
    try:
        assert notify(engine) == 301
    finally:
        event.remove(engine, "before_cursor_execute", count)
    written = [text for text in statements if text.startswith("INSERT")]
    # SQLite gets fifty rows by a statement, a server a thousand
    assert len(written) <= 7
    assert len([text for text in statements if not text.startswith("BEGIN")]) == 2 + len(written)


def test_nothing_is_written_where_nobody_listens_or_nothing_changed(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    assert notify(engine) == 0
    subscribe(engine, tmp_path, URL)
    assert notify(engine, kpis=()) == 0


def test_what_should_have_been_attempted_long_ago_is_overdue(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    subscribe(engine, tmp_path, URL)
    notify(engine, at=datetime.now(UTC) - timedelta(seconds=30))

    def overdue(seconds: int) -> int:
        with engine.connect() as connection:
            return deliveries.count_overdue(connection, timedelta(seconds=seconds))

    assert (overdue(10), overdue(60)) == (1, 0)
    leased = {"lease_owner": "x", "leased_until": datetime.now(UTC) + timedelta(seconds=30)}
    with engine.begin() as connection:
        connection.execute(update(metrics_webhook_delivery).values(leased))
    assert overdue(10) == 0


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_subscription_to_nothing_known_or_with_a_field_amiss_is_refused_by_name(
    engine: Engine, tmp_path: Path
) -> None:
    with_kpis(engine)
    with pytest.raises(InvalidSubscription, match="kpiId: no KPI has the id 'KD404'"):
        subscribe(engine, tmp_path, URL, "KD404")
    with pytest.raises(InvalidSubscription, match="retryNum: expected 0 to 100"):
        subscribe(engine, tmp_path, URL, retry_num=-1)
    with pytest.raises(InvalidSubscription, match="teamName: "):
        subscribe(engine, tmp_path, URL, team_name="x" * 65)
    with pytest.raises(InvalidSubscription, match="signingSecret: expected whsec_"):
        subscribe(engine, tmp_path, URL, signing_secret="plain")
    assert subscriptions.list_all(engine) == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_team_sees_and_manages_its_own_alone(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    ours = subscribe(engine, tmp_path, URL, team_name="acme")
    theirs = subscribe(engine, tmp_path, URL, team_name="other")
    notify(engine)
    assert [one.id for one in subscriptions.list_all(engine, team="acme")] == [ours.id]
    assert [one.subscription_ids for one in deliveries.list_newest(engine, team="acme")] == [(ours.id,)]
    assert deliveries.list_newest(engine, team="nobody") == []
    for act in (subscriptions.enable, subscriptions.remove):
        with pytest.raises(UnknownSubscription):
            act(engine, theirs.id, team="acme")
    assert len(deliveries.list_newest(engine)) == 2
    json.dumps([deliveries.json_fields(one) for one in deliveries.list_newest(engine)])

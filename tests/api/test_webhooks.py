"""Subscriptions and deliveries over HTTP, as a tenant and as an operator meet them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, update

from platform_defs.access.keys import issue_key
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.api.arrivals.webhooks import BASE
from platform_defs.store.tables import metadata
from platform_defs.store.tables.webhooks import metrics_webhook_delivery, metrics_webhook_subscription
from tests.api.serving import Api, serve_api
from tests.webhooks.receiver import notify, with_kpis

# refuses every connection at once, and is the only address inside that is allowed
URL = "http://127.0.0.9:9/a"


@pytest.fixture
def hooks(engine: Engine, tmp_path: Path) -> Iterator[Api]:
    with_kpis(engine)
    with serve_api(engine, home=tmp_path, webhook_allow="127.0.0.9/32", webhook_env="WEBHOOK_SIGNING") as api:
        yield api


def key_of(engine: Engine, tenant: Tenant | None = None, scope: str = "webhooks:write") -> dict[str, str]:
    if tenant is not None:
        add_tenant(engine, tenant)
    key = issue_key(engine, "hooks", [scope], tenant_id=None if tenant is None else tenant.id)
    return {"Authorization": f"Bearer {key}"}


def test_a_subscription_lives_from_post_to_delete(hooks: Api) -> None:
    headers = key_of(hooks.engine)
    wanted = {
        "kpiId": "KD1001",
        "callbackUrl": URL,
        "secret": "Header,Authorization,Bearer s3cr3t-over-http",
        "signingSecret": "env:WEBHOOK_SIGNING",
        "retryNum": 5,
        "userId": "u1",
    }
    answers = [hooks.client.post(BASE, json=wanted, headers=headers)]
    assert answers[0].status_code == 201, answers[0].text
    created = answers[0].json()
    assert created["secret"] == "Header,Authorization,***"
    assert created["signingSecret"] == "env:WEBHOOK_SIGNING"
    assert (created["kpiId"], created["retryNum"], created["status"], created["teamName"]) == ("KD1001", 5, "1", None)
    one = f"{BASE}/{created['id']}"
    answers.append(hooks.client.get(BASE, headers=headers))
    assert answers[-1].json() == {"subscriptions": [created]}
    answers.append(hooks.client.post(f"{one}:disable", headers=headers))
    assert (answers[-1].json()["status"], answers[-1].json()["disabledReason"]) == ("0", "disabled by hooks")
    answers.append(hooks.client.post(f"{one}:enable", headers=headers))
    assert answers[-1].json() == created
    notify(hooks.engine)
    answers.append(hooks.client.get(f"{BASE}/deliveries", headers=headers))
    (delivery,) = answers[-1].json()["deliveries"]
    assert (delivery["status"], delivery["subscriptionIds"]) == ("PENDING", [created["id"]])
    again = f"{BASE}/deliveries/{delivery['id']}:redeliver"
    answers.append(hooks.client.post(again, headers=headers))
    assert (answers[-1].status_code, answers[-1].json()["status"]) == (409, "conflict")
    with hooks.engine.begin() as connection:
        connection.execute(update(metrics_webhook_delivery).values(status="DEAD", next_attempt_at=None))
    answers.append(hooks.client.get(f"{BASE}/deliveries?status=dead&limit=1", headers=headers))
    assert len(answers[-1].json()["deliveries"]) == 1
    answers.append(hooks.client.post(again, headers=headers))
    assert (answers[-1].status_code, answers[-1].json()["status"]) == (202, "PENDING")
    assert hooks.client.delete(one, headers=headers).status_code == 204
    assert hooks.client.delete(one, headers=headers).status_code == 404
    with hooks.engine.connect() as connection:
        dump = [repr(tuple(row)) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    assert "s3cr3t" not in "".join([*dump, *(answer.text for answer in answers)])


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kpiId": "KD404"}, "kpiId"),
        ({"kpiId": None}, "kpiId"),
        ({"callbackUrl": "http://127.0.0.1/"}, "callbackUrl"),
        ({"callbackUrl": "http://2130706433/"}, "callbackUrl"),
        ({"callbackUrl": "http://[::ffff:169.254.169.254]/"}, "callbackUrl"),
        ({"callbackUrl": "https://u:hunter2@hooks.example/"}, "callbackUrl"),
        ({"callbackUrl": "ftp://hooks.example/"}, "callbackUrl"),
        ({"secret": "hunter2"}, "secret"),
        ({"secret": ["hunter2"]}, "secret"),
        ({"secret": "Header,Host,hunter2"}, "secret"),
        ({"secret": "Header,X-Key,env:PLATFORM_DB_URL"}, "secret"),
        ({"signingSecret": "hunter2"}, "signingSecret"),
        ({"retryNum": 101}, "retryNum"),
        ({"retryNum": "3"}, "retryNum"),
        ({"hunter": "hunter2"}, "hunter"),
    ],
)
def test_a_field_that_is_wrong_is_named_and_nothing_of_it_is_repeated(
    hooks: Api, change: dict[str, Any], field: str
) -> None:
    body = {"kpiId": "KD1001", "callbackUrl": URL} | change
    headers = key_of(hooks.engine)
    answer = hooks.client.post(BASE, json=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["status"] == "bad_request"
    assert answer.json()["message"].startswith(f"{field}: ")
    assert "hunter2" not in answer.text
    assert hooks.client.get(BASE, headers=headers).json() == {"subscriptions": []}


def test_a_tenant_sees_and_manages_its_own_alone(hooks: Api) -> None:
    engine = hooks.engine
    acme, other = key_of(engine, Tenant(7, "acme", "Acme")), key_of(engine, Tenant(8, "other", "Other"))
    body = {"kpiId": "KD1001", "callbackUrl": URL}
    mine = hooks.client.post(BASE, json=body, headers=acme).json()
    assert mine["teamName"] == "acme"
    refused = hooks.client.post(BASE, json=body | {"teamName": "acme"}, headers=other)
    assert (refused.status_code, refused.json()["message"][:9]) == (400, "teamName:")
    notify(engine)
    (delivery,) = hooks.client.get(f"{BASE}/deliveries", headers=acme).json()["deliveries"]
    assert hooks.client.get(f"{BASE}/deliveries", headers=other).json() == {"deliveries": []}
    assert hooks.client.get(BASE, headers=other).json() == {"subscriptions": []}
    one = f"{BASE}/{mine['id']}"
    for attempt in (
        hooks.client.delete(one, headers=other),
        hooks.client.post(f"{one}:disable", headers=other),
        hooks.client.post(f"{one}:enable", headers=other),
        hooks.client.post(f"{BASE}/deliveries/{delivery['id']}:redeliver", headers=other),
        hooks.client.post(f"{BASE}/x:disable", headers=acme),
    ):
        assert (attempt.status_code, attempt.json()["status"]) == (404, "not_found")
    assert len(hooks.client.get(BASE, headers=key_of(engine)).json()["subscriptions"]) == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("tenant", [None, Tenant(7, "acme", "Acme")], ids=["no tenant", "a tenant"])
def test_no_key_can_have_variables_sent_that_are_not_meant_for_it(hooks: Api, tenant: Tenant | None) -> None:
    headers = key_of(hooks.engine, tenant)
    body = {"kpiId": "KD1001", "callbackUrl": URL}
    for field, value in (("secret", "Header,X-Leak,env:PATH"), ("signingSecret", "env:PATH")):
        refused = hooks.client.post(BASE, json=body | {field: value}, headers=headers)
        assert refused.status_code == 400
        expected = f"{field}: a subscription made with this key must not refer to the variable PATH; "
        assert refused.json()["message"].startswith(expected)
    own = hooks.client.post(BASE, json=body | {"secret": "Query,t,env:WEBHOOK_ACME__T"}, headers=headers)
    assert own.status_code == (400 if tenant is None else 201)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_tenant_refers_to_variables_of_its_own_name_alone(hooks: Api) -> None:
    engine = hooks.engine
    keys = {
        code: key_of(engine, Tenant(n, code, code))
        for n, code in enumerate(["a", "a_b", "a.c", "A-C", "订单", "x", "x-"], 7)
    }

    def status(code: str, variable: str, **others: str) -> int:
        body = {"kpiId": "KD1001", "callbackUrl": URL, "secret": f"Header,X-T,env:{variable}"} | others
        return hooks.client.post(BASE, json=body, headers=keys[code]).status_code

    assert status("a", "WEBHOOK_A__TOKEN") == status("a_b", "WEBHOOK_A_B__TOKEN") == 201
    for variable in ("WEBHOOK_A_B__TOKEN", "WEBHOOK_A_TOKEN", "WEBHOOK_B__TOKEN", "WEBHOOK_A__", "webhook_a__T"):
        assert status("a", variable) == 400, variable
    assert status("a.c", "WEBHOOK_A_C__TOKEN") == status("A-C", "WEBHOOK_A_C__TOKEN") == 400, (
        "codes that come out equal"
    )
    assert status("订单", "WEBHOOK___TOKEN") == 400
    assert status("x", "WEBHOOK_X___TOKEN") == status("x-", "WEBHOOK_X___TOKEN") == 400, "x would read what is x-'s"
    # a key without tenant may name any team, and gets nobody's variables by it
    body = {"kpiId": "KD1001", "callbackUrl": URL, "secret": "Header,X-T,env:WEBHOOK_A__TOKEN", "teamName": "a"}
    assert hooks.client.post(BASE, json=body, headers=key_of(engine)).status_code == 400


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_subscriptions_from_before_that_send_foreign_variables_are_named_at_the_start(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_kpis(engine)
    key_of(engine, Tenant(7, "a", "A"))
    rows = [
        {"kpi_id": "KD1001", "callback_url": URL, "team_name": "a", "secret": f"Header,X,env:{name}"}
        for name in ("WEBHOOK_A__TOKEN", "WEBHOOK_B_TOKEN")
    ]
    with engine.begin() as connection:
        connection.execute(insert(metrics_webhook_subscription), rows)
        foreign = connection.scalar(select(func.max(metrics_webhook_subscription.c.id)))
    with serve_api(engine, home=tmp_path):
        pass
    named = [record.getMessage() for record in caplog.records if "foreign variable" in record.getMessage()]
    assert named == [
        f"subscription {foreign} sends a foreign variable: WEBHOOK_B_TOKEN is no variable of a, which begin with"
        " WEBHOOK_A__"
    ]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_settings_of_the_platform_are_not_sent_whatever_the_patterns_are(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    body = {"kpiId": "KD1001", "callbackUrl": URL}
    with serve_api(engine, home=tmp_path, webhook_allow="127.0.0.9/32", webhook_env="HOOK_*, *") as api:
        headers = key_of(engine)
        answers = [
            api.client.post(BASE, json=body | {"secret": f"Query,t,env:{name}"}, headers=headers).status_code
            for name in ("PLATFORM_DB_URL", "PATH")
        ]
    assert answers == [400, 201]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_scope_is_required_and_the_paths_are_documented(hooks: Api) -> None:
    answer = hooks.client.get(BASE, headers=key_of(hooks.engine, scope="arrivals:write"))
    assert (answer.status_code, answer.json()["status"]) == (403, "forbidden")
    assert hooks.client.get(BASE).status_code == 401
    paths = hooks.client.get("/openapi.json").json()["paths"]
    assert set(paths[BASE]) == {"get", "post"}
    assert {f"{BASE}/{{subscription_id}}:disable", f"{BASE}/deliveries/{{delivery_id}}:redeliver"} <= set(paths)
    assert paths[BASE]["post"]["x-scopes"] == ["webhooks:write"]
    bad = hooks.client.get(f"{BASE}/deliveries?status=lost", headers=key_of(hooks.engine))
    assert (bad.status_code, bad.json()["message"]) == (400, "status: expected pending, delivered or dead")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_literal_secret_that_no_key_could_encrypt_is_refused_and_a_reference_is_not(
    engine: Engine, tmp_path: Path
) -> None:
    home = tmp_path / "elsewhere"
    body = {"kpiId": "KD1001", "callbackUrl": URL, "secret": "Header,Authorization,hunter2"}
    with_kpis(engine)
    with serve_api(engine, home=home, webhook_allow="127.0.0.9/32", webhook_env="WEBHOOK_SIGNING") as api:
        headers = key_of(engine)
        answer = api.client.post(BASE, json=body, headers=headers)
        assert answer.status_code == 503
        assert answer.json()["message"] == "the platform has no key to encrypt a literal secret with"
        reference = {**body, "secret": "Header,Authorization,env:WEBHOOK_SIGNING"}
        assert api.client.post(BASE, json=reference, headers=headers).status_code == 201
    assert not home.exists()

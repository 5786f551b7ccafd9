"""A database, a graph and a home that the version before has written are read by this one."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
import yaml
from dagster import DagsterInstance
from sqlalchemy import select, update

from platform_defs import dagster_instance
from platform_defs.access.tenants import list_tenants
from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.arrivals.notify import subscriptions
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.observations import CURSOR
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.runner.kinds_of_work import KINDS_OF_WORK, job_launch
from platform_defs.runner.launcher import WarmRunLauncher
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_kpi_value, metrics_task_log
from platform_defs.store.tables.lineage import lineage_cursor
from platform_defs.store.tables.webhooks import metrics_webhook_delivery, metrics_webhook_subscription
from platform_defs.store.tables.work import work
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.encryption import Encryption
from platform_defs.webhooks.secrets import reveal_secret, reveal_signing_secret
from platform_defs.work import leases, rows
from platform_defs.work.definition_versions import read_versions
from platform_defs.work.rows import Status
from platform_defs.work.runners import all_runners
from tests.api.serving import serve_api
from tests.upgrade.conftest import DUMP, TENANTS, OldHome, read_lines
from tests.webhooks.receiver import receiving, sending

ON_SQLITE = pytest.mark.parametrize("old", ["sqlite"], indirect=True)
OP_TIME = "20260301"


def post(client: httpx.Client, old: OldHome, line: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {old.keys[line['source']]}"}
    answer = client.post("/api/openlineage", json=line["event"], headers=headers)
    assert answer.status_code == 201, answer.text


def test_the_graph_reads_as_the_version_before_printed_it(old: OldHome) -> None:
    for tenant in TENANTS:
        assert old.graph(tenant) == (DUMP / f"graph-{tenant}.jsonl").read_text(encoding="utf-8").splitlines()


def test_events_merge_into_the_graph_as_the_version_before_merged_them(old: OldHome) -> None:
    before = [line for line in read_lines("events.jsonl") if line["phase"] == "before"]
    after = [line for line in read_lines("events.jsonl") if line["phase"] == "after"]
    names: dict[str, str] = {}
    graphs = {tenant: comparable(old.graph(tenant), names) for tenant in TENANTS}
    with serve_api(old.engine, home=old.path) as api:
        for line in before:
            post(api.client, old, line)
        again = {tenant: comparable(old.graph(tenant), names) for tenant in TENANTS}
        assert again == graphs, "a repeated event changed the graph"
        for line, change in zip(after, read_lines("changes.jsonl"), strict=True):
            post(api.client, old, line)
            tenant, was = change["tenant"], graphs[change["tenant"]]
            graphs[tenant] = comparable(old.graph(tenant), names)
            assert graphs[tenant] - was == comparable(change["added"], names) - was, line["event"]
            assert was - graphs[tenant] == comparable(change["removed"], names) - graphs[tenant], line["event"]
        for line in [*before, *after]:
            post(api.client, old, line)
        again = {tenant: comparable(old.graph(tenant), names) for tenant in TENANTS}
    assert again == graphs, "a repeated event changed the graph"


def comparable(lines: Iterable[str], names: dict[str, str]) -> set[str]:
    """Lines of a graph without what only this version says: names of tables and columns, ids and counts of SQL nodes.

    names: the id of each SQL node that was seen -> its job and text, in place of the id.
    """
    items = [json.loads(line) for line in lines]
    for item in items:
        if item.get("node") == ["Knowledge", "SQL"]:
            names[item["id"]] = f"sql of {item['props'].get('jobName')}: {item['props'].get('content')}"
            item["props"].pop("executionCount", None)
        if item.get("node") in (["Knowledge", "Table"], ["Column", "Knowledge"]):
            item["props"] = {k: v for k, v in item["props"].items() if k not in ("namespace", "qualifiedName")}
        for end in ("id", "from", "to"):
            if end in item:
                item[end] = names.get(item[end], item[end])
    return {json.dumps(item, sort_keys=True) for item in items}


def test_a_rebuild_from_its_events_gives_the_same_graph(old: OldHome) -> None:
    names: dict[str, str] = {}
    graphs = {tenant: comparable(old.graph(tenant), names) for tenant in TENANTS}
    for tenant in list_tenants(old.engine):
        rebuild_tenant(old.engine, EmbeddedGraph.on(old.engine), tenant)
    assert {tenant: comparable(old.graph(tenant), names) for tenant in TENANTS} == graphs


def test_tenants_keys_and_refused_events_are_known(old: OldHome) -> None:
    assert [(tenant.id, tenant.code) for tenant in list_tenants(old.engine)] == [(1, "demo"), (7, "acme")]
    with serve_api(old.engine, home=old.path) as api:
        headers = {"Authorization": f"Bearer {old.keys['revoked']}"}
        assert api.client.post("/api/openlineage", json={}, headers=headers).status_code == 401
    (letter,) = dead_letters.list_letters(old.engine)
    assert json.loads(letter.payload)["job"]["name"] == "refused"
    assert letter.source == "demo"
    query = select(lineage_cursor.c.last_id).where(lineage_cursor.c.name == CURSOR)
    assert read(old.engine, lambda connection: connection.scalar(query)) is not None


def test_secrets_of_subscriptions_open_with_the_key_of_the_home(old: OldHome) -> None:
    encryption = Encryption(old.path)
    revealed = {}
    stored = select(metrics_webhook_subscription.c.secret, metrics_webhook_subscription.c.signing_secret)
    for row in read(old.engine, lambda connection: connection.execute(stored).all()):
        secret = reveal_secret(row.secret, encryption)
        revealed[secret.purpose] = secret.value
        assert reveal_signing_secret(row.signing_secret, encryption).startswith("whsec_c2VjcmV0")
    assert revealed == {
        "Header,Authorization": "Bearer s3cr3t-of-the-version-before",
        "Query,token": "s3cr3t-in-the-query",
        "Body,json": '{"token": "s3cr3t-in-the-body"}',
    }
    assert {listed.secret for listed in subscriptions.list_all(old.engine)} == {f"{name},***" for name in revealed}


def test_deliveries_are_listed_and_dead_letters_are_sent_again_with_their_secret(old: OldHome) -> None:
    found = deliveries.list_newest(old.engine)
    assert {delivery.status for delivery in found} == {"PENDING", "DELIVERED", "DEAD"}
    assert all(delivery.attempts for delivery in found)
    (dead,) = [delivery for delivery in found if delivery.status == "DEAD"]
    with receiving() as receiver:
        moved = update(metrics_webhook_delivery).where(metrics_webhook_delivery.c.id == dead.id)
        with old.engine.begin() as connection:
            connection.execute(moved.values(callback_url=receiver.url()))
            # the other open delivery has an address that nobody listens on any more
            others = update(metrics_webhook_delivery).where(metrics_webhook_delivery.c.status == "PENDING")
            connection.execute(others.values(status="DEAD", next_attempt_at=None))
        deliveries.redeliver(old.engine, dead.id)
        with sending(old.engine, old.path) as sender:
            sender.send_due()
        (request,) = receiver.received
    assert request.id == dead.webhook_id
    body = json.loads(request.body)
    assert (body["event"], body["modelId"], body["token"]) == ("KPI_UPDATED", "MODEL-01", "s3cr3t-in-the-body")
    assert deliveries.find(old.engine, dead.id).status == "DELIVERED"


def test_rows_of_work_of_every_kind_and_status_are_understood(old: OldHome) -> None:
    ids = read(old.engine, lambda connection: connection.scalars(select(work.c.id)).all())
    found = [rows.get(old.engine, id) for id in ids]
    assert {(row.kind, row.status) for row in found} >= {(kind, status) for kind in KINDS_BEFORE for status in Status}
    assert KINDS_OF_WORK.keys() >= KINDS_BEFORE
    for row in found:
        assert job_launch(row.kind, row.payload).job_name
    assert rows.count_open_rows(old.engine) == {Status.QUEUED: 5, Status.RUNNING: 5}
    assert {row.kind for row in leases.rows_with_expired_lease(old.engine)} == KINDS_BEFORE
    # what is running or queued is taken over, not started twice
    assert len(leases.claim(old.engine, "this version", 100)) == 5
    assert [runner.is_alive() for runner in all_runners(old.engine)] == [False]
    assert read(old.engine, read_versions).keys() == {"models"}


KINDS_BEFORE = {"arrival_report", "lineage_apply", "model_run", "selfcheck", "webhook_send"}


def test_models_executions_and_values_are_there_and_an_arrival_is_judged_by_them(old: OldHome) -> None:
    models = read(old.engine, load_models)
    assert {id: model.published for id, model in models.items()} == {
        "MODEL-01": True,
        "MODEL-02": True,
        "MODEL-03": False,
        "MODEL-04": True,
    }
    assert [kpi.kpi_id for kpi in models["MODEL-01"].kpis] == ["KD1001", "KD1002"]
    assert models["MODEL-01"].due is not None
    query = select(metrics_task_log.c.model_id, metrics_task_log.c.status)
    tasks = read(old.engine, lambda connection: {row.model_id: row.status for row in connection.execute(query)})
    assert tasks == {"MODEL-01": TaskStatus.SUCCESS, "MODEL-02": TaskStatus.FAILED}
    values = select(metrics_kpi_value.c.kpi_value).order_by(metrics_kpi_value.c.kpi_value)
    assert read(old.engine, lambda connection: connection.scalars(values).all()) == [1, 1, 5, 7]
    with serve_api(old.engine, home=old.path) as api:
        headers = {"Authorization": f"Bearer {old.keys['spark']}"}
        # the other dependency of MODEL-04: ORDERS arrived under the version before
        arrival = {"srcTableName": "SHOPS", "opTime": OP_TIME}
        answer = api.client.post("/api/open/kpi/srcTableComplete", json=arrival, params={"wait": 0}, headers=headers)
        assert answer.status_code == 200, answer.text
    with old.engine.connect() as connection:
        begun = connection.scalars(query.where(metrics_task_log.c.status == TaskStatus.RUNNING)).all()
    assert begun == ["MODEL-04"]


@ON_SQLITE
def test_the_dagster_instance_of_the_home_opens_with_the_file_of_the_version_before(
    old: OldHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(old.path))
    settings = Settings.load()
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    content = yaml.safe_load((DUMP / "dagster.yaml").read_text().replace("HOME", str(old.path)))
    dagster_home = dagster_instance.prepare(settings)
    (dagster_home / "dagster.yaml").write_text(yaml.safe_dump(content))
    with DagsterInstance.from_config(str(dagster_home)) as instance:
        assert isinstance(instance.run_launcher, WarmRunLauncher)
        assert instance.get_run_records() == []
    # the next start writes the file anew; it must describe the same storage
    dagster_instance.prepare(settings)
    assert yaml.safe_load((dagster_home / "dagster.yaml").read_text())["storage"] == content["storage"]

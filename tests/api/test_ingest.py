"""Ingest over HTTP: downstream systems ask for records, and operators see in the metrics what does not go on."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from platform_defs.access.keys import issue_key
from platform_defs.ingest.codes import PlanStatus, TaskStatus
from platform_defs.ingest.cursors.advance import Lineage
from platform_defs.ingest.cursors.operations import advance_after
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.tasks.blocks import block_endpoint
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan, ing_signal, ing_task
from tests.api.serving import Api
from tests.ingest.planning.test_planner import GRID, NOW, SPEC, end_tasks, plan, rows_of
from tests.ingest.registry.making import GOOD, load_text

SIGNALS = "/api/v1/ingest/demo/items/signals"


def test_a_signal_needs_its_scope_and_asks_for_each_record_once(api: Api) -> None:
    load_text(api.engine, GOOD, now=datetime.now(UTC))
    body = {"ids": ["a", "b", "a"], "reason": "retracted"}
    assert api.client.post(SIGNALS, json=body).status_code == 401
    other = {"Authorization": f"Bearer {issue_key(api.engine, 'other', ['lineage:write'])}"}
    assert api.client.post(SIGNALS, json=body, headers=other).status_code == 403
    headers = {"Authorization": f"Bearer {issue_key(api.engine, 'library', ['ingest:write'])}"}
    for _ in range(2):
        answer = api.client.post(SIGNALS, json=body, headers=headers)
        assert (answer.status_code, answer.json()) == (202, {"accepted": 2})
    found = rows_of(api.engine, ing_signal)
    assert [(row.provider_id, row.reason, row.requested_by) for row in found] == [
        ("a", "retracted", "library"),
        ("b", "retracted", "library"),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        (SIGNALS.replace("demo", "dmeo"), {"ids": ["a"]}, 404, "no active source has the code 'dmeo'"),
        (SIGNALS.replace("items", "item"), {"ids": ["a"]}, 404, "demo/item has no update"),
        (SIGNALS, {"ids": []}, 400, "ids: expected a list of 1 to 1000 ids"),
        (SIGNALS, {"ids": ["a", 7]}, 400, "ids[1]: expected a text"),
        (SIGNALS, ["a"], 400, "body: expected a JSON object"),
    ],
)
def test_a_signal_that_nobody_would_look_at_is_refused(
    api: Api, authorization: dict[str, str], path: str, body: Any, status: int, told: str
) -> None:
    load_text(api.engine, GOOD, now=datetime.now(UTC))
    answer = api.client.post(path, json=body, headers=authorization)
    assert (answer.status_code, told in answer.text) == (status, True), answer.text
    assert rows_of(api.engine, ing_signal) == []


def test_the_metrics_name_the_endpoint_whose_windows_were_given_up(api: Api) -> None:
    first = plan(api.engine, window=GRID.window(0), estimate=Estimate())
    end_tasks(api.engine, first.plan_id)
    [row] = rows_of(api.engine, ing_plan)
    advance_after(api.engine, row, SPEC, NOW, lineage=Lineage(plan_id=first.plan_id))
    failed = plan(api.engine, window=GRID.window(1), estimate=Estimate())
    assert end_tasks(api.engine, failed.plan_id, TaskStatus.FAILED) is PlanStatus.PARTIAL
    transact(
        api.engine,
        lambda c: block_endpoint(c, "made_up", "items", reason="no", error_code="HTTP_401", task_id=1, now=NOW),
    )
    told = api.client.get("/metrics").text
    given_up = 'platform_ingest_given_up{endpoint="items",op="HARVEST",source="made_up",status="FAILED"} 1.0'
    assert given_up in told
    assert 'platform_ingest_blocked{endpoint="items",source="made_up"} 1.0' in told
    assert 'platform_ingest_cursor_lag_seconds{endpoint="items",source="made_up"}' in told
    again = update(ing_task).where(ing_task.c.plan_id == failed.plan_id).values(status_code=TaskStatus.SUCCEEDED)
    transact(api.engine, lambda connection: connection.execute(again))
    assert given_up not in api.client.get("/metrics").text

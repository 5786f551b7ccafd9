"""Table arrival over HTTP, against the real API and runner: chapter 7 of the seed and its rules 3.2 to 3.5."""

import itertools
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from platform_defs.store.engine import transact
from tests.arrivals.world import work_of
from tests.e2e.arrivals_site import OP, PATH, Site
from tests.e2e.serving import Serving
from tests.waiting import until
from tests.webhooks.receiver import receiving

IN_PROGRESS = "任务正在执行中"


def test_a_table_that_no_model_depends_on_is_ignored_with_the_seeds_message(site: Site) -> None:
    assert site.post("NOBODY") == {"status": "IGNORED", "message": "无模型依赖此表"}
    assert list(site.arrivals()) == [site.name("NOBODY")]


def test_models_wait_are_skipped_run_and_run_again(site: Site) -> None:
    """The life of one batch: waiting, executed with counts, executed again when its ETL was done again."""
    site.load({"id": "both", "tables": ["A", "B"]}, {"id": "one", "tables": ["A"]})
    site.load({"id": "unpublished", "tables": ["A"]}, publish=False)
    ran = {"opTime": OP, "status": "SUCCESS", "computeCount": 2, "storageCount": 2}
    assert site.post("A", "2025-12-19") == {
        "status": "SUCCESS",
        "triggeredModels": [{"modelId": site.name("one"), **ran}],
        "waitingModels": [site.name("both")],
        "skippedModels": [site.name("unpublished")],
    }
    assert site.post("B") == {
        "status": "SUCCESS",
        "triggeredModels": [{"modelId": site.name("both"), **ran}],
        "waitingModels": [],
        "skippedModels": [],
    }
    assert site.values("both") == {"north": 1.5, "south": 6.5}

    site.orders(("south", OP, 7.0), ("west", OP, 1.0), ("east", OP, 1.0))
    again = site.post("B")["triggeredModels"]
    assert [(model["status"], model["computeCount"]) for model in again] == [("SUCCESS", 3)]
    assert site.values("both") == {"south": 7.0, "west": 1.0, "east": 1.0}
    assert [task.status for task in site.log("both")] == ["SUCCESS", "SUCCESS"]
    assert [task.status for task in site.log("one")] == ["SUCCESS"]
    assert site.log("unpublished") == []


def test_a_failing_model_says_why_and_does_not_touch_its_neighbour(site: Site) -> None:
    site.load({"id": "broken", "tables": ["A"], "reads": "NOWHERE"}, {"id": "sound", "tables": ["A"]})
    answer = site.post("A")
    broken, sound = answer["triggeredModels"]
    assert answer["status"] == "SUCCESS"
    assert (broken["modelId"], broken["status"]) == (site.name("broken"), "FAILED")
    assert site.name("NOWHERE") in broken["message"]
    assert sound["status"] == "SUCCESS"
    assert [task.message for task in site.log("broken")] == [broken["message"]]


def test_what_outlasts_the_wait_is_running_and_what_comes_meanwhile_is_skipped_and_covered(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.held})
    running = {"modelId": site.name("slow"), "opTime": OP, "status": "RUNNING"}
    with site.holding():
        answer = site.post("A", wait=0)["triggeredModels"]
        assert answer == [running | {"taskId": site.log("slow")[0].id}]
        until("the run to have read its tables", lambda: site.log("slow")[0].versions)
        skipped = running | {"status": "SKIPPED", "message": IN_PROGRESS}
        assert site.post("A")["triggeredModels"] == [skipped]
    log = site.until_quiet("slow")
    assert [(task.status, task.trigger_code) for task in log] == [("SUCCESS", "ARRIVAL"), ("SUCCESS", "AGAIN")]
    assert log[-1].versions == {table: at.isoformat() for table, at in site.arrivals().items()}


@pytest.mark.parametrize(
    ("body", "query", "named"),
    [
        ({"opTime": OP}, {}, "srcTableName"),
        ({"srcTableName": "T", "opTime": "2025-W51"}, {}, "opTime"),
        ({"srcTableName": "T", "opTime": OP}, {"wait": "601"}, "wait"),
    ],
)
def test_bad_input_is_400_naming_the_field(site: Site, body: object, query: dict[str, str], named: str) -> None:
    answer = site.client.post(f"{site.platform.up['api']}{PATH}", json=body, params=query, headers=site.headers)
    assert answer.status_code == 400
    assert answer.json()["status"] == "bad_request"
    assert named in answer.json()["message"]


def test_a_key_without_the_scope_is_403_and_the_path_is_documented(site: Site) -> None:
    key = site.platform.command("keys", "issue", f"other-{site.mark}", "--scopes", "lineage:write").stdout.strip()
    refused = site.client.post(f"{site.platform.up['api']}{PATH}", json={}, headers={"Authorization": key})
    assert refused.status_code == 403
    document = site.client.get(f"{site.platform.up['api']}/openapi.json").json()["paths"][PATH]["post"]
    assert document["x-scopes"] == ["arrivals:write"]
    assert "triggeredModels" in str(document["responses"]["200"])


def test_five_batches_in_one_second_are_five_runs(site: Site) -> None:
    site.load({"id": "daily", "tables": ["A"]})
    days = [f"202512{day}" for day in range(20, 25)]
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda day: site.post("A", day), days))
    assert [answer["triggeredModels"][0]["status"] for answer in answers] == ["SUCCESS"] * 5
    runs = {site.log("daily", day)[0].run_id for day in days}
    assert len(runs) == 5
    assert [len(site.log("daily", day)) for day in days] == [1] * 5
    # the answer comes with the end of the task, a moment before its run has ended
    for run_id in runs:
        site.platform.until_status(run_id, "SUCCESS")


def test_forty_requests_from_two_processes_never_execute_side_by_side(site: Site, tmp_path: Path) -> None:
    site.load({"id": "both", "tables": ["A", "B"]})
    second = Serving(site.platform.environment, tmp_path)
    try:
        apis = [site.platform.up["api"], second.url]
        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda number: site.post("AB"[number % 2], api=apis[number // 2 % 2]), range(40)))
    finally:
        second.stop()
    said = [model["status"] for answer in answers for model in answer["triggeredModels"]]
    assert set(said) <= {"SUCCESS", "SKIPPED", "RUNNING"}
    assert len(said) + sum(len(answer["waitingModels"]) for answer in answers) == 40
    _covered(site, site.until_quiet("both"))


def test_an_api_process_that_is_killed_while_its_models_run_loses_nothing(site: Site, tmp_path: Path) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.held})
    doomed = Serving(site.platform.environment, tmp_path)
    try:
        with ThreadPoolExecutor(1) as pool, site.holding():
            answer = pool.submit(site.post, "A", api=doomed.url)
            until("the arrival to be recorded", lambda: site.log("slow"))
            doomed.kill()
            with pytest.raises(httpx.TransportError):
                answer.result()
    finally:
        doomed.stop()
    _covered(site, site.until_quiet("slow"))


def test_a_run_whose_process_is_killed_is_made_again_and_every_arrival_is_covered(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    assert site.post("A", wait=0)["triggeredModels"][0]["status"] == "RUNNING"
    site.until_querying("slow")
    assert site.post("A")["triggeredModels"][0]["status"] == "SKIPPED"
    site.pace(0)
    os.kill(work_of(site.engine, site.log("slow")[0]).pid, signal.SIGKILL)
    log = until(
        "another run to succeed",
        lambda: log if (log := site.log("slow"))[-1].status == "SUCCESS" else [],
    )
    assert [task.status for task in log] == ["FAILED", "SUCCESS"]
    assert "killed" in log[0].message
    _covered(site, log)


def test_whoever_waits_for_a_run_that_is_killed_is_answered_by_the_one_after_it(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(site.post, "A")
        site.until_querying("slow")
        site.pace(0)
        os.kill(work_of(site.engine, site.log("slow")[0]).pid, signal.SIGKILL)
        assert answer.result()["triggeredModels"][0]["status"] == "SUCCESS"
    assert [task.status for task in site.log("slow")] == ["FAILED", "SUCCESS"]


def test_a_stopping_api_answers_running_instead_of_failing(site: Site, tmp_path: Path) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.held})
    stopping = Serving(site.platform.environment, tmp_path)
    with ThreadPoolExecutor(1) as pool, site.holding():
        answer = pool.submit(site.post, "A", api=stopping.url)
        until("the arrival to be recorded", lambda: site.log("slow"))
        stopping.stop()
        assert answer.result()["triggeredModels"][0]["status"] == "RUNNING"
    site.until_quiet("slow")


def test_an_arrival_that_an_etl_job_writes_itself_runs_the_model(site: Site) -> None:
    site.load({"id": "direct", "tables": ["A"]})
    insert = text("INSERT INTO metrics_etl_log (table_name, op_time, arrival_time) VALUES (:name, :op, :at)")
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    transact(site.engine, lambda c: c.execute(insert, {"name": site.name("A"), "op": OP, "at": at}))
    until("the sensor to see it", lambda: site.log("direct"))
    assert [(task.status, task.trigger_code) for task in site.until_quiet("direct")] == [("SUCCESS", "SENSOR")]


def test_a_table_that_an_etl_job_wrote_with_dashes_and_one_over_http_are_one_batch(site: Site) -> None:
    site.load({"id": "dashed", "tables": ["A", "B"]})
    insert = text("INSERT INTO metrics_etl_log (table_name, op_time, arrival_time) VALUES (:name, :op, :at)")
    row = {"name": site.name("A"), "op": f"{OP[:4]}-{OP[4:6]}-{OP[6:]}", "at": f"{datetime.now(UTC):%F %T}"}
    transact(site.engine, lambda c: c.execute(insert, row))
    (triggered,) = site.post("B")["triggeredModels"]
    assert triggered["status"] == "SUCCESS"
    assert [(task.op_time, task.status) for task in site.until_quiet("dashed")] == [(OP, "SUCCESS")]


def test_subscribers_of_a_kpi_hear_of_its_new_values(site: Site) -> None:
    site.load({"id": "told", "tables": ["A"]})
    kpi = f"K{site.name('told')}"
    with receiving() as receiver:
        created = site.client.post(
            f"{site.platform.up['api']}/api/open/kpi/webhooks",
            json={"kpiId": kpi, "callbackUrl": receiver.url(), "secret": "Header,X-Token,s3cret-value"},
            headers=site.headers,
        )
        assert created.status_code in (200, 201), created.text
        site.post("A")
        (request,) = until("the call", lambda: receiver.received)
    body = json.loads(request.body)
    assert {name: body[name] for name in ("event", "modelId", "opTime", "affectedKpiIds")} == {
        "event": "KPI_UPDATED",
        "modelId": site.name("told"),
        "opTime": OP,
        "affectedKpiIds": [kpi],
    }
    assert request.headers["x-token"] == "s3cret-value"


def _covered(site: Site, log: list[Any]) -> None:
    """Every arrival was read by an execution that completed, and no two executions overlapped.

    The versions say what was read. An arrival may be a little later than the start: a task that was handed on waits for
    a process, and what arrives meanwhile is read as well.
    """
    assert log[-1].status == "SUCCESS"
    assert log[-1].versions == {table: at.isoformat() for table, at in site.arrivals().items()}
    assert all(before.end_time <= after.start_time for before, after in itertools.pairwise(log))

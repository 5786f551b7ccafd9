"""Results over HTTP and by command: tasks, how batches stand, and exact values, also of computed KPIs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, insert, update

from platform_defs.access.keys import issue_key
from platform_defs.arrivals.executions.model_run import ExecutionEnvironment, run_for_work
from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.sources.named import Sources
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_kpi
from tests.api.serving import Api, environment, platform, serve_api
from tests.arrivals.models.making import run_statements
from tests.arrivals.world import logged_tasks, silent

OP = "20251219"
FILE = """
models:
  - model_id: M
    name: Orders
    depends_on: [ORDERS, SHOPS]
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM result_orders WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis:
      - {kpi_id: K1, name: Amount, expression: SUM(amount)}
      - {kpi_id: K2, name: Orders, expression: COUNT(amount)}
  - model_id: N
    name: Stock
    depends_on: [STOCK]
    dimensions: [region]
    sql: SELECT region, 2 AS K9 FROM result_orders WHERE op_time = ${op_time} GROUP BY region
    kpis: [{kpi_id: K9, name: Stock, expression: MAX(1)}]
computed_kpis:
  - {kpi_id: C1, name: Average, expression: K1 / K2}
  - {kpi_id: C2, name: Twice the average, expression: "ROUND(C1 * 2, 1)"}
  - {kpi_id: C3, name: By stock, expression: K1 / K9}
"""


@pytest.fixture
def api(engine: Engine, tmp_path: Path) -> Iterator[Api]:
    run_statements(
        engine,
        "CREATE TABLE result_orders (op_time VARCHAR(20), region VARCHAR(20), amount DECIMAL(38, 0))",
        "INSERT INTO result_orders VALUES ('20251219', 'N', 9007199254740993), ('20251219', 'S', NULL),"
        " ('20251220', 'N', 4), ('20251220', 'N', 5)",
    )
    catalog.save(engine, read_file(FILE.encode(), "models.yaml"))
    for model_id in "MN":
        catalog.publish(engine, model_id)
    with serve_api(engine, home=tmp_path) as served:
        key = issue_key(engine, "etl", ["arrivals:read", "arrivals:write"])
        served.client.headers["Authorization"] = f"Bearer {key}"
        yield served
    run_statements(engine, "DROP TABLE result_orders")


def arrives(api: Api, table: str, op_time: str = OP) -> Any:
    body = {"srcTableName": table, "opTime": op_time}
    answer = api.client.post("/api/open/kpi/srcTableComplete", json=body, params={"wait": 0})
    assert answer.status_code == 200, answer.text
    return answer.json()


def execute(engine: Engine, model_id: str, op_time: str = OP) -> None:
    """Executes what was queued, as a run does."""
    task = logged_tasks(engine, model_id, op_time)[-1]
    environment = ExecutionEnvironment(engine, Sources(engine, {}), timeout_s=60, notify=silent)
    run_for_work(environment, model_id, op_time, task.work_id, task.run_id)


def get(api: Api, path: str, **parameters: Any) -> httpx.Response:
    return api.client.get(f"/api/open/kpi/{path}", params=parameters)


def numbers(page: Any) -> list[tuple[str, str, str, str | None]]:
    return [(found["opTime"], found["dims"]["region"], found["kpiId"], found["value"]) for found in page["values"]]


def test_a_batch_is_followed_from_the_first_arrival_to_its_values(api: Api) -> None:
    arrives(api, "ORDERS")
    batch = get(api, f"models/M/batches/{OP}").json()
    assert (batch["verdict"], batch["missing"], batch["lastTask"]) == ("WAITING", ["SHOPS"], None)
    assert [found["table"] for found in batch["arrived"]] == ["ORDERS"]
    [running] = arrives(api, "SHOPS")["triggeredModels"]
    assert running == {"modelId": "M", "opTime": OP, "status": "RUNNING", "taskId": running["taskId"]}
    task = get(api, f"tasks/{running['taskId']}").json()
    assert (task["status"], task["trigger"], task["nextTaskId"]) == ("RUNNING", "ARRIVAL", None)
    execute(api.engine, "M")
    arrives(api, "SHOPS")
    task = get(api, f"tasks/{running['taskId']}").json()
    assert (task["status"], task["computeCount"], task["storageCount"]) == ("SUCCESS", 2, 3)
    last = get(api, "models/M/batches/2025-12-19").json()["lastTask"]
    assert (last["status"], last["taskId"]) == ("RUNNING", task["nextTaskId"])
    assert set(task["versions"]) == {"ORDERS", "SHOPS"}


def test_values_are_exact_text_and_computed_kpis_are_evaluated_over_equal_batches_and_dimensions(api: Api) -> None:
    for op_time in (OP, "20251220"):
        arrives(api, "ORDERS", op_time)
        arrives(api, "SHOPS", op_time)
        execute(api.engine, "M", op_time)
    arrives(api, "STOCK", "20251220")
    execute(api.engine, "N", "20251220")
    page = get(api, "models/M/values").json()
    assert page["next"] is None
    by_region = sorted(numbers(page))
    assert by_region == [
        (OP, "N", "C1", "9007199254740993"),
        (OP, "N", "C2", "18014398509481986"),
        (OP, "N", "C3", None),
        (OP, "N", "K1", "9007199254740993"),
        (OP, "N", "K2", "1"),
        (OP, "S", "C1", None),
        (OP, "S", "C2", None),
        (OP, "S", "C3", None),
        (OP, "S", "K2", "0"),
        ("20251220", "N", "C1", "4.5"),
        ("20251220", "N", "C2", "9"),
        ("20251220", "N", "C3", "4.5"),
        ("20251220", "N", "K1", "9"),
        ("20251220", "N", "K2", "2"),
    ]
    assert {found.get("modelVersion") for found in page["values"]} == {1, None}
    one = get(api, "models/M/values", opTime="2025-12-20", kpiId="C1").json()
    assert numbers(one) == [("20251220", "N", "C1", "4.5")]
    paged, cursor = [], None
    while True:
        part = get(api, "models/M/values", limit=1, **({"cursor": cursor} if cursor else {})).json()
        paged += numbers(part)
        cursor = part["next"]
        if cursor is None:
            break
    assert sorted(paged) == by_region


def test_a_stored_expression_with_another_function_reads_as_null_with_the_reason(api: Api) -> None:
    old = {"kpi_id": "C9", "name": "Old", "kpi_type": "COMPUTED", "expression": "SQRT(K1)", "depends_on": ["K1"]}
    transact(api.engine, lambda connection: connection.execute(insert(metrics_kpi).values(old)))
    wide = update(metrics_kpi).where(metrics_kpi.c.kpi_id == "C3").values(expression="K1 * 1e20", depends_on=["K1"])
    transact(api.engine, lambda connection: connection.execute(wide))
    for table in ("ORDERS", "SHOPS"):
        arrives(api, table)
    execute(api.engine, "M")
    found = get(api, "models/M/values", kpiId="C9").json()["values"]
    assert [(value["value"], value["reason"]) for value in found if value["dims"] == {"region": "N"}] == [
        (None, "expected only arithmetic, comparisons, CASE, COALESCE, NULLIF, ROUND and ABS, got SQRT(K1)")
    ]
    [value] = [
        value for value in get(api, "models/M/values", kpiId="C3").json()["values"] if value["dims"]["region"] == "N"
    ]
    assert "more than 28 digits" in value["reason"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_what_is_asked_wrongly_or_without_the_scope_is_refused_by_name(api: Api) -> None:
    for path, status, expected in (
        ("tasks/99", 404, "no task has the id 99"),
        ("tasks/x", 404, "no task has the id x"),
        ("models/NOBODY/values", 404, "no model has the id 'NOBODY'"),
        (f"models/NOBODY/batches/{OP}", 404, "no model has the id 'NOBODY'"),
        ("models/M/values?kpiId=K9", 400, "kpiId: expected a KPI of M or one that builds on them: K1, K2, C1, C2, C3"),
        (
            "models/M/batches/xx",
            400,
            "opTime: expected 4 to 14 digits such as 20251219, or a batch of M that an ETL job",
        ),
        ("models/M/values?limit=0", 400, "limit"),
        ("models/M/values?cursor=x", 400, "cursor: expected the `next` of an earlier page"),
    ):
        answer = api.client.get(f"/api/open/kpi/{path}")
        assert (answer.status_code, expected in answer.text) == (status, True), answer.text
    key = issue_key(api.engine, "writer", ["arrivals:write"])
    refused = api.client.get("/api/open/kpi/models/M/values", headers={"Authorization": f"Bearer {key}"})
    assert (refused.status_code, "arrivals:read" in refused.text) == (403, True)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_same_is_read_by_command(api: Api, tmp_path: Path) -> None:
    arrives(api, "ORDERS", "20251220")
    arrives(api, "SHOPS", "20251220")
    execute(api.engine, "M", "20251220")
    arrives(api, "ORDERS")
    env = environment(api.engine.url, tmp_path)
    values = platform("models", "values", "M", "--op-time", "20251220", "--kpi", "C1", env=env)
    assert values.stdout.splitlines() == [
        "opTime    kpi  dims             value",
        '20251220  C1   {"region": "N"}  4.5',
    ], values.stderr
    batches = platform("models", "batches", "M", "--json", env=env).stdout.splitlines()
    found = [json.loads(line) for line in batches]
    assert [(batch["opTime"], batch["verdict"], batch["missing"]) for batch in found] == [
        ("20251220", "CURRENT", []),
        (OP, "WAITING", ["SHOPS"]),
    ]
    [_, task] = platform("models", "tasks", "M", env=env).stdout.splitlines()
    assert task.split()[1:4] == ["20251220", "SUCCESS", "ARRIVAL"]
    wrong = platform("models", "values", "NOBODY", env=env)
    assert (wrong.returncode, wrong.stderr) == (
        1,
        "platform: no model has the id 'NOBODY'; `platform models list` shows all\n",
    )

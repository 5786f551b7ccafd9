"""The life of a model, as an operator types it: dry run, versions, old batches again, rename, retire, delete."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, insert, select

from platform_defs.arrivals.executions.lifecycle import start_operator_execution
from platform_defs.arrivals.executions.model_run import ExecutionEnvironment, run_for_work
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.sources.named import Sources
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_kpi, metrics_kpi_value, metrics_model_running, metrics_task_log
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.store.tables.work import work
from tests.arrivals.models.making import run_statements
from tests.arrivals.models.test_commands import Run, run, write
from tests.arrivals.world import logged_tasks, silent, write_arrival
from tests.work.living import living_runner

__all__ = ["run"]
on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
FILE = """\
models:
  - model_id: M
    name: Orders
    depends_on: [ORDERS]
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM life_orders WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis:
      - {kpi_id: K1, name: Amount, expression: SUM(amount)}
      - {kpi_id: K2, name: Orders, expression: COUNT(*)}
computed_kpis:
  - {kpi_id: C1, name: Average, expression: K1 / K2}
"""
DAYS = ["20251217", "20251218", "20251219"]


@pytest.fixture
def orders(engine: Engine) -> Iterator[Engine]:
    run_statements(
        engine,
        "CREATE TABLE life_orders (op_time VARCHAR(20), region VARCHAR(20), amount INT)",
        "INSERT INTO life_orders VALUES ('20251217', 'N', 1), ('20251218', 'N', 2), ('20251219', 'N', 3)",
    )
    yield engine
    run_statements(engine, "DROP TABLE life_orders")


def execute_queued(engine: Engine) -> int:
    """Executes what is queued, as runs do; returns how many."""
    query = select(metrics_task_log).join(
        metrics_model_running, metrics_model_running.c.task_id == metrics_task_log.c.id
    )
    tasks = read(engine, lambda connection: connection.execute(query).all())
    environment = ExecutionEnvironment(engine, Sources(engine, {}), timeout_s=60, notify=silent)
    for task in tasks:
        run_for_work(environment, task.model_id, task.op_time, task.work_id, task.run_id)
    return len(tasks)


@contextmanager
def executing(engine: Engine) -> Iterator[None]:
    """A runner's part, in a thread: executes whatever is queued until the block ends."""
    ended = threading.Event()

    def work_off() -> None:
        while not ended.wait(0.05):
            execute_queued(engine)

    living_runner(engine)
    thread = threading.Thread(target=work_off)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_changed_sql_is_a_new_version_and_old_batches_are_run_again_after_arrivals(orders: Engine, run: Run) -> None:
    run("load", write(FILE))
    run("publish", "M")
    for day in DAYS:
        record_arrival(orders, Arrival("ORDERS", day))
    assert execute_queued(orders) == 3
    renamed_kpi = FILE.replace("name: Amount", "name: The amount")
    assert "is now version" not in run("load", write(renamed_kpi))[1], "a name changes no value"
    doubled = renamed_kpi.replace("SUM(amount)", "2 * SUM(amount)")
    code, out, _ = run("load", "--dry-run", write(doubled))
    assert code == 0
    assert "-kpi K1: The amount: SUM(amount)" in out
    assert "+kpi K1: The amount: 2 * SUM(amount)" in out
    assert "M: a new version, 1 -> 2" in out
    assert read(orders, load_models)["M"].version == 1
    assert run("load", write(doubled))[1] == (
        "updated: M\ncomputed KPIs: C1\nM is now version 2\n"
        "  run its old batches: platform models run M --from 20251217 --to 20251219\n"
    )
    assert run("load", "--dry-run", write(doubled))[1] == "nothing would change\n"
    with executing(orders):
        code, out, err = run("run", "M", "--from", "20251218", "--to", "2025-12-19")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "2 batches queued"
    assert sorted(line.split("  ", 1)[1] for line in out.splitlines()[1:]) == [
        "20251218  1 rows, 2 values",
        "20251219  1 rows, 2 values",
    ]
    value = metrics_kpi_value.c
    query = select(value.op_time, value.kpi_value, value.model_version).where(value.kpi_id == "K1")
    found = read(orders, lambda connection: sorted(connection.execute(query).all()))
    assert [tuple(row) for row in found] == [(DAYS[0], 1, 1), (DAYS[1], 4, 2), (DAYS[2], 6, 2)]
    last = logged_tasks(orders, "M", DAYS[1])[-1]
    assert last.trigger_code == "OPERATOR"
    priorities = select(work.c.id, work.c.priority).order_by(work.c.id)
    rows = dict(read(orders, lambda connection: connection.execute(priorities).all()))
    assert rows[last.work_id] > min(rows.values()), "arrivals go first"


@on_sqlite
def test_only_batches_whose_tables_arrived_are_run_and_a_failure_is_the_exit_code(orders: Engine, run: Run) -> None:
    run(
        "load", write(FILE.replace("depends_on: [ORDERS]", "depends_on: [ORDERS, SHOPS]").replace("amount)", "absent)"))
    )
    write_arrival(orders, "ORDERS", DAYS[0])
    for table in ("ORDERS", "SHOPS"):
        write_arrival(orders, table, DAYS[1])
    with executing_failures(orders):
        code, out, err = run("run", "M", "--from", "2025", "--to", "2026")
    assert (code, err) == (1, "1 of 1 batches failed\n")
    assert out.splitlines()[1].startswith(f"1/1  {DAYS[1]}  FAILED: no such column: absent")
    assert out.splitlines()[0] == "1 batch queued"
    code, out, err = run("run", "M", "--from", "x", "--to", "y")
    assert (code, out) == (0, "")
    assert err == "no batch from x to y has all its tables; `platform models batches` lists them\n"
    code, out, err = run("run", "M", "--from", DAYS[1], "--to", DAYS[0])
    assert (code, out) == (2, "")
    assert err.endswith(f"expected --from to be no later than --to, got {DAYS[1]} and {DAYS[0]}\n")
    assert "no model has the id 'NOBODY'" in run("run", "NOBODY", "--from", "1", "--to", "2")[2]


@contextmanager
def executing_failures(engine: Engine) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, executing(engine):
        patch.setattr(threading, "excepthook", lambda arguments: None)
        yield


def test_a_renamed_model_keeps_its_values_tasks_and_kpis(orders: Engine, run: Run) -> None:
    run("load", write(FILE))
    run("publish", "M")
    record_arrival(orders, Arrival("ORDERS", DAYS[0]))
    code, _, err = run("rename", "M", "NEW-1")
    assert (code, "is being executed for 20251217" in err) == (1, True)
    execute_queued(orders)
    for wrong, expected in (("1x", "expected a letter"), ("M", "exists already")):
        assert expected in run("rename", "M", wrong)[2]
    assert run("rename", "M", "NEW-1")[0] == 0
    model = read(orders, load_models)["NEW-1"]
    assert (model.published, [kpi.kpi_id for kpi in model.kpis]) == (True, ["K1", "K2"])
    assert [task.status for task in logged_tasks(orders, "NEW-1", DAYS[0])] == ["SUCCESS"]
    value = json.loads(run("values", "NEW-1", "--kpi", "K1", "--json")[1])
    assert (value["opTime"], value["dims"], value["value"]) == ("20251217", {"region": "N"}, "1")
    outcome = record_arrival(orders, Arrival("ORDERS", DAYS[1]))
    assert list(outcome.queued) == ["NEW-1"]
    assert logged_tasks(orders, "M", DAYS[1]) == []


@on_sqlite
def test_a_retired_model_is_not_named_any_more_and_its_values_stay(orders: Engine, run: Run) -> None:
    run("load", write(FILE))
    run("publish", "M")
    record_arrival(orders, Arrival("ORDERS", DAYS[0]))
    execute_queued(orders)
    assert run("retire", "M") == (0, "M retired; its values stay\n", "")
    assert run("retire", "M")[1] == "M is already retired\n"
    assert run("unpublish", "M")[1] == "M is not published\n"
    assert not record_arrival(orders, Arrival("ORDERS", DAYS[1])).depended_on
    assert "retired" in run("list")[1]
    assert "K1" in run("values", "M")[1]
    run("load", write(FILE.replace("Orders", "Sales")))
    assert read(orders, load_models)["M"].retired, "loading a file again does not bring it back"
    run("publish", "M")
    assert record_arrival(orders, Arrival("ORDERS", DAYS[1])).queued


@on_sqlite
@pytest.mark.parametrize("with_values", [False, True])
def test_a_deleted_model_takes_its_kpis_and_disables_their_subscriptions(
    orders: Engine, run: Run, with_values: bool
) -> None:
    other = FILE.replace("model_id: M", "model_id: OTHER").replace("K1", "O1").replace("K2", "O2").replace("C1", "O3")
    run("load", write(FILE))
    run("load", write(other))
    run("publish", "M")
    record_arrival(orders, Arrival("ORDERS", DAYS[0]))
    execute_queued(orders)
    rows = [{"kpi_id": kpi_id, "callback_url": "https://example.com"} for kpi_id in ("K1", "C1", "O1")]
    transact(orders, lambda connection: connection.execute(insert(metrics_webhook_subscription), rows))
    start_operator_execution(orders, "M", DAYS[1], "0" * 36, datetime.now(UTC))
    assert "is being executed for 20251218" in run("delete", "M")[2]
    transact(orders, lambda connection: connection.execute(metrics_model_running.delete()))
    code, out, _ = run("delete", "M", *(["--values"] if with_values else []))
    assert code == 0
    assert "M deleted with the KPIs K1, K2, C1" in out
    assert "disabled subscriptions: 1, 2" in out
    assert list(read(orders, load_models)) == ["OTHER"]
    kpis = read(orders, lambda connection: set(connection.scalars(select(metrics_kpi.c.kpi_id))))
    assert kpis == {"O1", "O2", "O3"}
    values = read(orders, lambda connection: connection.scalars(select(metrics_kpi_value.c.kpi_id)).all())
    assert len(values) == (0 if with_values else 2)
    subscription = metrics_webhook_subscription.c
    query = select(subscription.status, subscription.disabled_reason).order_by(subscription.id)
    assert [tuple(row) for row in read(orders, lambda connection: connection.execute(query).all())] == [
        ("0", "its KPI is gone: model M was deleted"),
        ("0", "its KPI is gone: model M was deleted"),
        ("1", None),
    ]


@on_sqlite
def test_a_kpi_that_a_file_no_longer_has_disables_its_subscriptions(orders: Engine, run: Run) -> None:
    run("load", write(FILE))
    rows = [{"kpi_id": kpi_id, "callback_url": "https://example.com"} for kpi_id in ("K1", "K2")]
    transact(orders, lambda connection: connection.execute(insert(metrics_webhook_subscription), rows))
    fewer = FILE.replace("      - {kpi_id: K2, name: Orders, expression: COUNT(*)}\n", "").replace("K1 / K2", "K1 * 2")
    assert run("load", write(fewer))[1].splitlines()[-1] == "disabled subscriptions: 2"

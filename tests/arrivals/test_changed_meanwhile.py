"""What changes while an execution or a look at a source is under way: neither may write what is out of date."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, select, text

from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.executions.model_run import ExecutionEnvironment, ExecutionResult, run_for_work
from platform_defs.arrivals.executions.source_watch import SourceWatch
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.arrivals.models.catalog import publish, save
from platform_defs.arrivals.models.file import read_file
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import Sources
from platform_defs.sources.transactions import ReadTransaction
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_kpi_value
from tests.arrivals.world import add_model, logged_tasks, silent

OP = "20251219"
LOOKBACK = timedelta(days=7)
FILE = """
models:
  - model_id: {model}
    name: Orders
    depends_on: [A]
    source: platform
    sql: SELECT ${{kpis}} FROM orders_of_test WHERE op_time = ${{op_time}}
    kpis:
"""


@dataclass(frozen=True)
class Slow(Sources):
    """A source during whose query something else happens, once."""

    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    @contextmanager
    def read_transaction(self, name: str, timeout_s: float, mark: str | None = None) -> Iterator[ReadTransaction]:
        with super().read_transaction(name, timeout_s, mark) as transaction:
            yield transaction
        if self.meanwhile:
            self.meanwhile.pop()()

    def ask(self, name: str) -> None:
        if not self.meanwhile:
            raise SourceError("refused", is_transient=True)
        self.meanwhile.pop()()


@pytest.fixture
def orders(engine: Engine) -> Iterator[Engine]:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders_of_test (op_time VARCHAR(32), amount INT)"))
        rows = [{"op_time": OP, "amount": amount} for amount in (3, 4)]
        connection.execute(text("INSERT INTO orders_of_test VALUES (:op_time, :amount)"), rows)
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE orders_of_test"))


def load(engine: Engine, **kpis_of: str) -> None:
    """Loads the models, each with its KPIs as `ID: EXPRESSION` separated by semicolons."""
    for model_id, kpis in kpis_of.items():
        lines = [
            f"      - {{kpi_id: {name}, name: {name}, expression: '{said.strip()}'}}\n"
            for name, said in (kpi.split(":") for kpi in kpis.split(";"))
        ]
        content = FILE.format(model=model_id) + "".join(lines)
        save(engine, read_file(content.encode(), f"{model_id}.yaml"))


def execute(engine: Engine, model_id: str, *meanwhile: Callable[[], object]) -> ExecutionResult:
    task = logged_tasks(engine, model_id, OP)[-1]
    environment = ExecutionEnvironment(engine, Slow(engine, {}, meanwhile=list(meanwhile)), timeout_s=60, notify=silent)
    return run_for_work(environment, model_id, OP, task.work_id, task.run_id)


def values(engine: Engine) -> dict[tuple[str, str], tuple[int, int]]:
    value = metrics_kpi_value.c
    query = select(value.model_id, value.kpi_id, value.kpi_value, value.model_version)
    found = read(engine, lambda connection: connection.execute(query).all())
    return {(row.model_id, row.kpi_id): (int(row.kpi_value), row.model_version) for row in found}


def test_a_version_that_is_loaded_while_a_batch_is_executed_computes_that_batch(orders: Engine) -> None:
    load(orders, M="K: SUM(amount)")
    publish(orders, "M")
    record_arrival(orders, Arrival("A", OP))
    result = execute(orders, "M", lambda: load(orders, M="K: COUNT(*)"))
    assert values(orders) == {("M", "K"): (2, 2)}
    assert result.version == 2
    assert [task.status for task in logged_tasks(orders, "M", OP)] == ["SUCCESS"]


def test_a_kpi_that_moved_to_another_model_keeps_the_values_that_this_one_has_computed(orders: Engine) -> None:
    load(orders, M="K: SUM(amount); L: SUM(amount)", N="O: MAX(amount)")
    for model_id in ("M", "N"):
        publish(orders, model_id)
    record_arrival(orders, Arrival("A", OP))

    def move() -> None:
        load(orders, M="L: SUM(amount)")
        load(orders, N="O: MAX(amount); K: COUNT(*)")
        execute(orders, "N")

    execute(orders, "M", move)
    assert values(orders) == {("M", "L"): (7, 2), ("N", "O"): (4, 2), ("N", "K"): (2, 2)}


def test_a_batch_that_was_executed_while_its_source_was_asked_is_not_executed_once_more(engine: Engine) -> None:
    add_model(engine, "M", ["A"])

    def end(status: TaskStatus, code: FailureCode | None = None) -> None:
        task = logged_tasks(engine, "M", OP)[-1]
        batch = lifecycle.start_queued_execution(engine, ("M", OP), task.work_id, task.run_id, datetime.now(UTC))
        lifecycle.finish_execution(engine, batch, status, silent, failure_code=code, retries=0)

    def succeed() -> None:
        record_arrival(engine, Arrival("A", OP))
        end(TaskStatus.SUCCESS)

    record_arrival(engine, Arrival("A", OP))
    end(TaskStatus.FAILED, FailureCode.SOURCE)
    sources = Slow(engine, {}, meanwhile=[succeed])
    assert SourceWatch().begin(engine, sources, LOOKBACK, datetime.now(UTC)) == {}
    assert [task.status for task in logged_tasks(engine, "M", OP)] == ["FAILED", "SUCCESS"]


def test_a_clock_that_was_set_back_does_not_keep_a_source_from_being_asked(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    record_arrival(engine, Arrival("A", OP))
    task = logged_tasks(engine, "M", OP)[-1]
    batch = lifecycle.start_queued_execution(engine, ("M", OP), task.work_id, task.run_id, datetime.now(UTC))
    lifecycle.finish_execution(engine, batch, TaskStatus.FAILED, silent, failure_code=FailureCode.SOURCE, retries=0)
    watch, now = SourceWatch(), datetime.now(UTC)
    assert watch.begin(engine, Slow(engine, {}), LOOKBACK, now + timedelta(hours=8)) == {}
    answering = Slow(engine, {}, meanwhile=[lambda: None])
    assert list(watch.begin(engine, answering, LOOKBACK, now)) == [("M", OP)]

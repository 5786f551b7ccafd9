"""Table arrival on a running platform: models, the tables that they read, arrivals, and what became of them."""

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Engine, select, text
from sqlalchemy.engine import make_url

from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.store.engine import open_engine, read, transact
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_kpi_value
from platform_defs.store.tables.work import work
from tests import loopback
from tests.arrivals.world import logged_tasks
from tests.e2e.warm import Warm
from tests.waiting import PATIENCE_S, until

PATH = "/api/open/kpi/srcTableComplete"
OP = "20251219"
# how long a held query waits if nobody ends it
LONGEST_S = 600
# for `paced` on SQLite: some seconds of processor time
BUSY = 15
# processor time that no execution of a model needs before its query
BUSY_S = 4.0
# what Dagster notes of a run that starts cold, which has a process of the code server and none in its row of work
COLD_PROCESS = re.compile(r"Started process for run \(pid: (\d+)\)")


@dataclass
class Site:
    """A running platform, and names that no other test uses."""

    platform: Warm
    engine: Engine
    mark: str
    client: httpx.Client

    def name(self, short: str) -> str:
        return f"{short}_{self.mark}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.platform.key}"}

    def post(self, table: str, op_time: str = OP, *, api: str | None = None, **query: Any) -> dict[str, Any]:
        answer = self.client.post(
            f"{api or self.platform.up['api']}{PATH}",
            json={"srcTableName": self.name(table), "opTime": op_time},
            params={"wait": PATIENCE_S, **query},
            headers=self.headers,
        )
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def load(self, *models: dict[str, Any], publish: bool = True) -> None:
        """What `platform models load` and `publish` do, without a process for each."""
        contents = read_file(("models:\n" + "".join(map(self._yaml, models))).encode(), "models.yaml")
        catalog.save(self.engine, contents)
        for model in models if publish else ():
            catalog.publish(self.engine, self.name(model["id"]))

    def unpublish(self, model: str) -> None:
        catalog.unpublish(self.engine, self.name(model))

    def _yaml(self, model: dict[str, Any]) -> str:
        query = "SELECT ${dimGroup}, ${kpis} FROM {table} WHERE op_time = ${op_time} GROUP BY ${dimGroup}"
        kpi = {"kpi_id": f"K{self.name(model['id'])}", "name": "Amount"}
        described = {
            "model_id": self.name(model["id"]),
            "name": model["id"],
            "depends_on": [self.name(table) for table in model["tables"]],
            "source": model.get("source", "platform"),
            "dimensions": ["region"],
            "sql": query.replace("{table}", model.get("reads_exactly") or self.name(model.get("reads", "ORDERS"))),
            "kpis": [kpi | {"expression": model.get("expression", "SUM(amount)")}],
        }
        return f"  - {json.dumps(described)}\n"

    def orders(self, *rows: tuple[str, str, float]) -> None:
        """The table that models read: (region, op_time, amount)."""
        table = self.name("ORDERS")

        def write(connection: Any) -> None:
            connection.execute(
                text(f"CREATE TABLE IF NOT EXISTS {table} (region VARCHAR(20), op_time VARCHAR(20), amount DOUBLE)")
            )
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608
            for region, op_time, amount in rows:
                values = {"region": region, "op_time": op_time, "amount": amount}
                statement = f"INSERT INTO {table} VALUES (:region, :op_time, :amount)"  # noqa: S608
                connection.execute(text(statement), values)

        transact(self.engine, write)

    def pace(self, seconds: float) -> None:
        """How long each row of a model with the expression `paced` takes from now on."""
        table = self.name("PACE")

        def write(connection: Any) -> None:
            connection.execute(text(f"CREATE TABLE IF NOT EXISTS {table} (seconds DOUBLE)"))
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608
            connection.execute(text(f"INSERT INTO {table} VALUES (:seconds)"), {"seconds": seconds})  # noqa: S608

        transact(self.engine, write)

    @property
    def paced(self) -> str:
        """An expression that takes as long as the test says; on SQLite only roughly."""
        seconds = f"(SELECT seconds FROM {self.name('PACE')})"  # noqa: S608
        if self.engine.dialect.name == "mysql":
            return f"SUM(amount) + SUM(SLEEP({seconds}))"
        rows = f"SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000 * {seconds}"  # noqa: S608
        return f"SUM(amount) + (WITH RECURSIVE n(i) AS ({rows}) SELECT 0 * MAX(i) FROM n)"  # noqa: S608

    @property
    def held(self) -> str:
        """An expression that does not end while the test is `holding`."""
        if self.engine.dialect.name == "mysql":
            lock = f"'{self.name('HOLD')}'"
            return f"SUM(amount) + 0 * SUM(GET_LOCK({lock}, {LONGEST_S}) + RELEASE_LOCK({lock}))"
        return self.paced

    @contextmanager
    def holding(self) -> Iterator[None]:
        """On SQLite nobody can hold a query that reads: there it takes far more processor time than a request."""
        if self.engine.dialect.name == "mysql":
            lock = {"name": self.name("HOLD")}
            with self.engine.connect() as connection:
                assert connection.scalar(text("SELECT GET_LOCK(:name, 0)"), lock) == 1
                try:
                    yield
                finally:
                    connection.execute(text("SELECT RELEASE_LOCK(:name)"), lock)
            return
        self.pace(BUSY)
        try:
            yield
        finally:
            self.pace(0)

    def values(self, model: str, op_time: str = OP) -> dict[str, float]:
        value = metrics_kpi_value.c
        query = select(value.dims, value.kpi_value).where(value.model_id == self.name(model), value.op_time == op_time)
        return {dims["region"]: number for dims, number in read(self.engine, lambda c: c.execute(query).all())}

    def log(self, model: str, op_time: str = OP) -> list[Any]:
        return logged_tasks(self.engine, self.name(model), op_time)

    def until_quiet(self, model: str, op_time: str = OP) -> list[Any]:
        """The task log once nothing runs any more."""

        def look() -> list[Any]:
            log = self.log(model, op_time)
            return log if log and all(task.status != "RUNNING" for task in log) else []

        return until(f"{model} to be quiet", look)

    def pid_of_run(self, run_id: str) -> int:
        """The process of a run, whichever row of work it belongs to, also if it started cold."""

        def look() -> int | None:
            query = select(work.c.pid).where(work.c.run_id == run_id)
            pid = read(self.engine, lambda connection: connection.execute(query).scalar_one_or_none())
            cold = None if pid else COLD_PROCESS.search(self.platform.messages(run_id))
            return int(cold[1]) if cold else pid

        return int(until("the run to have a process", look) or 0)

    def until_querying(self, model: str) -> Any:
        """The newest task, once its query with the expression `paced` has read how long it is to take."""
        task: Any = until("the run to begin", lambda: (log := self.log(model)) and log[-1].versions and log[-1])
        if self.engine.dialect.name == "mysql":
            until("the query to sleep", lambda: "User sleep" in self.queries_of(task).values())
        else:
            pid = self.pid_of_run(task.run_id)
            # a run that starts cold has used seconds for its imports before it begins
            before = _processor_seconds(pid)
            until("the query to use the processor", lambda: _processor_seconds(pid) > before + BUSY_S)
        return task

    def queries_of(self, task: Any) -> dict[str, str]:
        """Statements of a task that the server executes now, with what it does; SQLite has none outside the process."""
        if self.engine.dialect.name != "mysql":
            return {}
        shown = read(self.engine, lambda connection: connection.execute(text("SHOW FULL PROCESSLIST")).mappings().all())
        statements = {str(row["Info"]): str(row["State"]) for row in shown}
        return {said: at for said, at in statements.items() if f"platform task {task.id} run {task.run_id}" in said}

    def arrivals(self) -> dict[str, datetime]:
        log = metrics_etl_log.c
        query = select(log.table_name, log.arrival_time).where(log.table_name.like(f"%{self.mark}"))
        return {row.table_name: row.arrival_time for row in read(self.engine, lambda c: c.execute(query).all())}


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def opened_site(platform: Warm) -> Iterator[Site]:
    url = platform.environment.get("PLATFORM_DB_URL") or f"sqlite:///{platform.home / 'platform.db'}"
    engine = open_engine(make_url(url))
    try:
        with loopback.client(limits=httpx.Limits(max_connections=64)) as client:
            site = Site(platform, engine, uuid.uuid4().hex[:8], client)
            site.orders(("north", OP, 1.5), ("south", OP, 2.5), ("south", OP, 4.0))
            site.pace(0)
            yield site
    finally:
        engine.dispose()

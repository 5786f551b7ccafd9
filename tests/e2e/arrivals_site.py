"""Table arrival on a running platform: models, the tables that they read, arrivals, and what became of them."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
from sqlalchemy import Engine, select, text
from sqlalchemy.engine import make_url

from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.store.engine import open_engine, read, transact
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_kpi_value
from tests import loopback
from tests.arrivals.world import logged_tasks
from tests.e2e.warm import Warm
from tests.waiting import PATIENCE_S, until

PATH = "/api/open/kpi/srcTableComplete"
OP = "20251219"


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
    def slow(self) -> str:
        """An expression that takes a second or so."""
        if self.engine.dialect.name == "mysql":
            return "SUM(amount) + SUM(SLEEP(0.4))"
        return (
            "SUM(amount) + (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000)"
            " SELECT 0 * MAX(i) FROM n)"
        )

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

    def arrivals(self) -> dict[str, datetime]:
        log = metrics_etl_log.c
        query = select(log.table_name, log.arrival_time).where(log.table_name.like(f"%{self.mark}"))
        return {row.table_name: row.arrival_time for row in read(self.engine, lambda c: c.execute(query).all())}


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

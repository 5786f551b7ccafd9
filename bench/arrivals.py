"""Table arrival: requests per second with 0, 1 and 20 dependent models, time from POST to start, readiness at scale.

    .venv/bin/python -m bench.arrivals [embedded] [servers] [starts]

`starts` measures the time to start alone.

Each kind starts a platform of its own on this machine. `servers` needs PLATFORM_TEST_MYSQL_URL and
PLATFORM_TEST_NEO4J_URL, or `make services`.
"""

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Engine, event, insert, select, text
from sqlalchemy.engine import make_url

from platform_defs.arrivals.readiness import Verdict, judge
from platform_defs.arrivals.standings import standings_of_dependents
from platform_defs.arrivals.sweep import sweep_arrivals
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import open_engine, read, transact
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model_input
from platform_defs.store.tables.work import work
from platform_defs.work import rows
from tests.arrivals.world import add_models, logged_tasks
from tests.conftest import dropped_databases, new_database
from tests.e2e.conftest import server_environment
from tests.e2e.platform_up import PlatformUp

PATH = "/api/open/kpi/srcTableComplete"
SQL = "SELECT ${dimGroup}, ${kpis} FROM bench_orders WHERE op_time = ${op_time} GROUP BY ${dimGroup}"
BATCHES = itertools.count(10_000_000)
CLIENTS = 8


class Caller:
    def __init__(self, up: PlatformUp) -> None:
        self._url = f"{up.up['api']}{PATH}"
        self._client = httpx.Client(headers={"Authorization": up.key}, timeout=120, trust_env=False)

    def post(self, table: str, op_time: str, **query: Any) -> dict[str, Any]:
        answer = self._client.post(self._url, json={"srcTableName": table, "opTime": op_time}, params=query)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def close(self) -> None:
        self._client.close()


def measure_requests(caller: Caller, table: str, seconds: float) -> tuple[float, float]:
    """Requests per second and the median of their milliseconds; each is a batch of its own and waits for its models."""
    ends = time.monotonic() + seconds
    spans: list[float] = []

    def ask(_: int) -> None:
        while time.monotonic() < ends:
            began = time.monotonic()
            answer = caller.post(table, str(next(BATCHES)))
            assert all(model["status"] == "SUCCESS" for model in answer.get("triggeredModels", [])), answer
            spans.append(time.monotonic() - began)

    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(ask, range(CLIENTS)))
    return len(spans) / (time.monotonic() - began), statistics.median(spans) * 1000


# The parts of the way from the POST to the model's start, in order, with the event of the run that ends each.
PARTS = {
    "POST to the process of the run": None,
    "the process opens its instance and records the run": "ASSET_MATERIALIZATION_PLANNED",
    "Dagster begins the run": "PIPELINE_START",
    "Dagster prepares resources": "RESOURCE_INIT_SUCCESS",
    "Dagster begins the step": "STEP_START",
    "the model reads which tables have arrived": None,
}


def measure_starts(
    up: PlatformUp, caller: Caller, engine: Engine, table: str, model_id: str, times: int
) -> tuple[list[float], dict[str, float]]:
    """Milliseconds from the POST to the moment at which the run has read its tables, one at a time; and their parts."""
    spans: list[float] = []
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    for _ in range(times):
        op_time = str(next(BATCHES))
        asked = datetime.now(UTC)
        caller.post(table, op_time)
        (task,) = logged_tasks(engine, model_id, op_time)
        spans.append((task.start_time - asked).total_seconds() * 1000)
        row = rows.get(engine, task.work_id)
        query = select(work.c.started_at).where(work.c.id == row.id)
        instants = [asked, read(engine, lambda connection, query=query: connection.scalar(query))]
        instants += [_event_time(up, row.run_id, name) for name in PARTS.values() if name is not None]
        instants.append(task.start_time)
        for name, (before, after) in zip(PARTS, itertools.pairwise(instants), strict=True):
            parts[name].append((after - before).total_seconds() * 1000)
    return spans, {name: statistics.median(found) for name, found in parts.items()}


def _event_time(up: PlatformUp, run_id: str, event_type: str) -> datetime:
    events = up.graphql(
        """query ($id: ID!) { logsForRun(runId: $id) { ... on EventConnection {
             events { ... on MessageEvent { timestamp eventType } } } } }""",
        id=run_id,
    )["logsForRun"]["events"]
    types = {"PIPELINE_START": "RUN_START"}
    wanted = {event_type, types.get(event_type, event_type)}
    found = next(event for event in events if event["eventType"] in wanted)
    return datetime.fromtimestamp(int(found["timestamp"]) / 1000, UTC)


def measure_readiness(engine: Engine, models: int, arrivals: int, times: int) -> tuple[float, float, int]:
    """Milliseconds to judge one arrival, to sweep everything, and the queries of a judgement."""
    name = f"r{models}"
    tables = max(10, models // 2)
    add_models(
        engine,
        {f"{name}-{n}": [f"{name}_t{(n * 7 + k) % tables}" for k in range(3)] for n in range(models)},
    )
    batches = [str(20_000_000 + models + n) for n in range(max(1, arrivals // tables))]
    now = datetime.now(UTC)
    rows = [
        {"table_name": f"{name}_t{n}", "op_time": op_time, "arrival_time": now}
        for op_time in batches
        for n in range(tables)
    ]
    for part in chunks(rows, 5000):
        transact(engine, lambda c, part=part: c.execute(insert(metrics_etl_log), part))
    # Every batch counts as executed, as on a platform that has been running for some time.
    read_before = [
        {"model_id": f"{name}-{n}", "op_time": op_time, "dependency_table_name": table, "arrival_time": now}
        for op_time in batches
        for n in range(models)
        for table in {f"{name}_t{(n * 7 + k) % tables}" for k in range(3)}
    ]
    for part in chunks(read_before, 5000):
        transact(engine, lambda c, part=part: c.execute(insert(metrics_model_input), part))

    queries = 0

    def count(connection: object, cursor: object, statement: str, *_: object) -> None:
        nonlocal queries
        queries += statement.startswith("SELECT")

    def judge_arrival(connection: Any) -> None:
        standings = standings_of_dependents(connection, f"{name}_t3", batches[0])
        assert {judge(standing) for standing in standings} == {Verdict.CURRENT}

    read(engine, judge_arrival)
    event.listen(engine, "before_cursor_execute", count)
    read(engine, judge_arrival)
    event.remove(engine, "before_cursor_execute", count)
    return (
        _median(times, lambda: read(engine, judge_arrival)),
        _median(3, lambda: sweep_arrivals(engine, timedelta(days=7), datetime.now(UTC))),
        queries,
    )


def _median(times: int, work: Callable[[], object]) -> float:
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return statistics.median(spans) * 1000


@contextmanager
def platform(kind: str, folder: Path) -> Iterator[tuple[PlatformUp, Engine]]:
    home = folder / kind
    if kind == "embedded":
        url, names, environment = make_url(f"sqlite:///{home / 'platform.db'}"), [], {}
    else:
        url, names = new_database("mysql", home)
        environment = server_environment(url)
    up = PlatformUp(home, environment)
    try:
        up.until_ready()
        engine = open_engine(url)
        try:
            yield up, engine
        finally:
            engine.dispose()
    finally:
        up.end()
        dropped_databases("mysql", names)


def measure(kind: str, folder: Path, seconds: float) -> None:
    with platform(kind, folder) as (up, engine):
        print(f"\n{'MySQL + Neo4j' if kind == 'servers' else 'embedded'}")
        transact(
            engine,
            lambda c: c.execute(
                text("CREATE TABLE bench_orders (region VARCHAR(20), op_time VARCHAR(20), amount DOUBLE)")
            ),
        )
        add_models(engine, {"one": ["T1"], **{f"of-twenty-{n}": ["T20"] for n in range(20)}}, sql=SQL)
        caller = Caller(up)
        try:
            caller.post("T1", str(next(BATCHES)))
            for models, table in ((0, "T0"), (1, "T1"), (20, "T20")) if seconds else ():
                rate, median = measure_requests(caller, table, seconds)
                print(
                    f"  {models:2} dependent models   {rate:8.1f} requests/s   p50 {median:8.1f} ms, {CLIENTS} clients"
                )
            spans, parts = measure_starts(up, caller, engine, "T1", "one", 20)
            aim = "150 ms" if kind == "embedded" else "250 ms"
            print(f"  POST to the model's start   p50 {statistics.median(spans):.0f} ms   (aim: {aim}), of which")
            for name, milliseconds in parts.items():
                print(f"    {name:52} {milliseconds:6.0f} ms")
        finally:
            caller.close()
    if not seconds:
        return
    with tempfile.TemporaryDirectory() as scratch:
        store = "mysql" if kind == "servers" else "sqlite"
        from platform_defs.store import migrate

        url, names = new_database(store, Path(scratch))
        engine = open_engine(url)
        try:
            migrate.upgrade(engine)
            few, few_swept, _ = measure_readiness(engine, 100, 1000, 50)
            many, many_swept, queries = measure_readiness(engine, 10_000, 100_000, 50)
        finally:
            engine.dispose()
            dropped_databases(store, names)
    print(f"  readiness of an arrival: 100 models {few:.2f} ms, 10,000 models and 100,000 arrivals {many:.2f} ms")
    print(f"    ratio {many / few:.2f} (aim: under 2), {queries} queries (aim: at most 3)")
    print(f"  the sensor's sweep of 7 days: {few_swept:.0f} ms and {many_swept:.0f} ms")


def main() -> None:
    kinds = [kind for kind in ("embedded", "servers") if kind in sys.argv[1:]] or ["embedded"]
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            measure(kind, Path(folder), seconds=8 if "starts" not in sys.argv[1:] else 0)


if __name__ == "__main__":
    main()

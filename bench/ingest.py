"""Ingest against a bare loop for the same pages, two executors against one, four pickers against one, and memory.

    .venv/bin/python -m bench.ingest [--pages N] [--store sqlite|mysql] [--dlt PYTHON]

500 pages of 100 Crossref items, those of ten days, come from the demo source, which runs as a process of its own. The
bare loop is httpx, orjson and executemany with one transaction a page; ingest does the same with its whole ledger: rate
gate, leases, batches, outbox, quarantine, cursor. It is measured as the platform runs it, with four windows at a time,
and with one window after the other. `--dlt` names the Python of a venv with `dlt[sqlalchemy]` and `pymysql`: dlt's
rest_api then merges the same pages. Each measurement runs in a fresh process, so that memory and CPU are its own.
"""

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
from sqlalchemy import Engine

from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.http_door.door import Door
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.execution import executor as executor_module
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.planning.planner import plan_bucket, plan_window
from platform_defs.ingest.planning.update_candidates import id_slices
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.tasks.leases import LeasedTask, lease_tasks
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.conftest import dropped_databases, new_database
from tests.ingest.demo.harvest import DAY, NOW, Harvester
from tests.needs import Absent, find

PAGE = 100
DAYS = 10
LATENCY_MS = 50
# as many as the platform fetches of an endpoint
WINDOWS_AT_A_TIME = 4
# executors that drain one queue, and how many tasks each
PICKERS = 4
PICKS = 500
WINDOWS = 50
ROUNDS = 3


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu_seconds: float
    records: int
    # peak memory above what stood after the imports
    grown_mb: float

    def __str__(self) -> str:
        speed, per_cpu = self.records / self.seconds, self.records / self.cpu_seconds
        return f"{speed:8.0f} records/s {per_cpu:8.0f} per CPU second, {self.grown_mb:5.0f} MB above import"


def days() -> list[Window]:
    return [Window(DAY.start - timedelta(days=back), DAY.end - timedelta(days=back)) for back in range(DAYS)]


def bare_loop(database: str, url: str) -> int:
    """What somebody would write who needs the records once and nothing else."""
    engine = open_engine(database)
    raw = engine.raw_connection()
    cursor, mark = raw.cursor(), "?" if engine.dialect.name == "sqlite" else "%s"
    cursor.execute("CREATE TABLE bare (doi VARCHAR(190) PRIMARY KEY, updated VARCHAR(32), record TEXT)")
    statement = f"REPLACE INTO bare VALUES ({mark}, {mark}, {mark})"  # noqa: S608  # nothing of it comes from outside
    count = 0
    with httpx.Client() as client:
        for day in days():
            token, items = "*", [None] * PAGE
            while len(items) == PAGE:
                filters = f"from-index-date:{day.start:%F},until-index-date:{day.start:%F}"
                params = {"filter": filters, "rows": str(PAGE), "cursor": token}
                message = orjson.loads(client.get(f"{url}/works", params=params).content)["message"]
                items, token = message["items"], message["next-cursor"]
                rows = [(each["DOI"].lower(), each["indexed"]["date-time"], orjson.dumps(each)) for each in items]
                if rows:
                    # the engine's connections commit each statement unless a transaction was begun
                    cursor.execute("BEGIN")
                    cursor.executemany(statement, rows)
                    cursor.execute("COMMIT")
                count += len(rows)
    return count


def full_ledger(database: str, url: str) -> int:
    """As the platform runs it: several windows at a time."""
    return _harvest(database, threads=WINDOWS_AT_A_TIME)


def one_after_the_other(database: str, url: str) -> int:
    return _harvest(database, threads=1)


def _harvest(database: str, threads: int) -> int:
    with opened_harvester(database, threads) as harvester:
        results = harvester.harvest("demo_crossref", *days())
    for result in results:
        assert result.is_complete, result.report
    return sum(result.report.totals["inserted"] for result in results)


def drain_windows(database: str, url: str) -> int:
    with opened_harvester(database) as harvester:
        executor = Executor(
            harvester.engine, harvester.environment.open_source, threads=1, per_partition=64, clock=lambda: NOW
        )
        return executor.drain_everything()


def pick_times(database: str, url: str, tasks: int) -> list[float]:
    """Works on so many tasks of the queue, and returns how long each look for the next one took."""
    times: list[float] = []

    def timed(*arguments: Any, **named: Any) -> list[LeasedTask]:
        began = time.perf_counter()
        taken = lease_tasks(*arguments, **named)
        if taken:
            times.append(time.perf_counter() - began)
        return taken

    executor_module.lease_tasks = timed  # type: ignore[attr-defined]  # this process does nothing else
    with opened_harvester(database) as harvester:
        executor = Executor(
            harvester.engine,
            harvester.environment.open_source,
            threads=1,
            per_partition=64,
            clock=lambda: NOW,
            on_end=lambda task, status: executor.cancel.set() if len(times) >= tasks else None,
        )
        executor.drain_everything()
    return times


@contextmanager
def opened_harvester(database: str, threads: int = 1) -> Iterator[Harvester]:
    engine, gate_engine = open_engine(database), open_gate_engine(database)
    with Door(RateGate(gate_engine)) as door:
        yield Harvester(engine, door, {"pagination.page_size": PAGE}, change=without_limits, threads=threads)


def without_limits(spec: Any) -> Any:
    return replace(spec, rate=replace(spec.rate, refill_per_s=100_000.0, burst=10_000))


def _measure(work: Callable[[str, str], int], database: str, url: str, answers: Any) -> None:
    before = peak_mb()
    cpu, began = time.process_time(), time.perf_counter()
    count = work(database, url)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    answers.put(Measured(seconds, used, count, peak_mb() - before))


def peak_mb() -> float:
    """Of this process since it began; getrusage would include the process that it was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measured(work: Callable[[str, str], int], database: str, url: str) -> Measured:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_measure, args=(work, database, url, answers))
    process.start()
    found: Measured = answers.get()
    process.join()
    return found


@contextmanager
def demo_source(records: int, latency_ms: int = 0) -> Iterator[str]:
    # without a limit: the headers of Crossref, 50 requests a second, would be what is measured
    arguments = ["--records", str(records), "--now", NOW.isoformat(), "--latency-ms", str(latency_ms)]
    arguments += ["--rate", "100000", "--burst", "1000"]
    command = [sys.executable, "-m", "platform_defs.demo_source", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def database(store: str, url: str) -> Iterator[tuple[str, Engine]]:
    """A migrated database that knows the demo source."""
    with tempfile.TemporaryDirectory() as folder:
        address, names = new_database(store, Path(folder))
        engine = open_engine(address)
        migrate.upgrade(engine)
        load_demo_sources(engine, url, now=NOW - timedelta(days=1))
        try:
            yield address.render_as_string(hide_password=False), engine
        finally:
            engine.dispose()
            dropped_databases(store, names)


def compare_with_bare_loop(store: str, pages: int, dlt_python: str | None) -> None:
    with demo_source(pages * PAGE // DAYS * 60) as url:
        with database(store, url) as (address, _):
            measured(bare_loop, address, url)  # the source writes each item once; later requests find it written
        with database(store, url) as (address, _):
            bare = measured(bare_loop, address, url)
        with database(store, url) as (address, _):
            ours = measured(full_ledger, address, url)
        with database(store, url) as (address, _):
            in_turn = measured(one_after_the_other, address, url)
        dlt = None if dlt_python is None else measured_dlt(dlt_python, store, url)
    print(f"{store}: {pages} pages of {PAGE}")
    print(f"  bare loop                 {bare}")
    print(f"  ingest, {WINDOWS_AT_A_TIME} windows at a time {ours}")
    print(f"  ingest, one by one        {in_turn}")
    print(f"  ingest / bare loop        {_ratio(ours, bare)} (aim: 0.8); memory aim: 150 MB")
    print(f"  one by one / bare loop    {_ratio(in_turn, bare)}")
    if dlt is not None:
        print(f"  dlt, rest_api with merge  {dlt}")
        print(f"  ingest / dlt              {_ratio(ours, dlt)} (aim: 5 per CPU second)")


def _ratio(one: Measured, other: Measured) -> str:
    speed = (one.records / one.seconds) / (other.records / other.seconds)
    per_cpu = (one.records / one.cpu_seconds) / (other.records / other.cpu_seconds)
    return f"{speed:.2f} of the records/s, {per_cpu:.2f} per CPU second"


def measured_dlt(python: str, store: str, url: str) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        address, names = new_database(store, Path(folder))
        script = Path(__file__).with_name("dlt_rest_api.py")
        driver = "sqlite" if store == "sqlite" else "mysql+pymysql"
        target = address.set(drivername=driver, query={}).render_as_string(hide_password=False)
        arguments = [f"{day.start:%F}" for day in days()]
        try:
            done = subprocess.run([python, script, url, target, *arguments], stdout=subprocess.PIPE, check=True)
        finally:
            dropped_databases(store, names)
    return Measured(**orjson.loads(done.stdout.splitlines()[-1]))


def compare_executors(store: str) -> None:
    """Windows of one page each, at a source that takes 50 ms to answer; in turns, because a machine has other work."""
    ratios = [_seconds_of_executors(store, 1) / _seconds_of_executors(store, 2) for _ in range(ROUNDS)]
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    median = statistics.median(ratios)
    print(f"{store}: two executors, {LATENCY_MS} ms latency: {median:.2f} of the throughput of one ({told}; aim: 1.7)")


def _seconds_of_executors(store: str, count: int) -> float:
    with demo_source(60 * PAGE // 2, LATENCY_MS) as url, database(store, url) as (address, engine):
        _plan_windows(engine)
        context = multiprocessing.get_context("spawn")
        with context.Pool(count) as pool:
            pool.map(abs, range(count))  # the processes are up and have imported this module
            began = time.perf_counter()
            ended = pool.starmap(drain_windows, [(address, url)] * count, chunksize=1)
            seconds = time.perf_counter() - began
        assert sum(ended) == WINDOWS, ended
    return seconds


def _plan_windows(engine: Engine) -> None:
    with opened_harvester(engine.url.render_as_string(hide_password=False)) as harvester:
        compiled = harvester.compile("demo_crossref", "works", Operation.HARVEST)
    for number in range(WINDOWS):
        window = Window(DAY.start - timedelta(days=number), DAY.end - timedelta(days=number))
        plan_window(engine, compiled, window, schedule_instance_id=1, trigger=Trigger.MANUAL, now=NOW)


def compare_pickers(store: str) -> None:
    """Four executors drain 2,000 tasks, each a record that is fetched by its id; one executor drains a quarter."""
    p95 = {count: statistics.quantiles(_times_of_pickers(store, count), n=20)[-1] * 1000 for count in (1, 4)}
    print(
        f"{store}: pick p95 {p95[1]:.1f} ms with one executor, {p95[4]:.1f} ms with four:"
        f" {p95[4] / p95[1]:.1f}x (aim: 2x)"
    )


def _times_of_pickers(store: str, count: int) -> list[float]:
    with demo_source(600, LATENCY_MS) as url, database(store, url) as (address, engine):
        with opened_harvester(address) as harvester:
            compiled = harvester.compile("demo_crossref", "works", Operation.UPDATE)
        batching = replace(compiled.spec.batching, max_ids_per_slice=1)
        spec = replace(compiled.spec, batching=batching, stock_limit=PICKERS * PICKS)
        ids = [str(number) for number in range(PICKERS * PICKS)]
        slices = id_slices(spec, 0, ids)
        plan = replace(compiled, spec=spec)
        plan_bucket(engine, plan, 0, slices, schedule_instance_id=1, trigger=Trigger.MANUAL, now=NOW)
        with multiprocessing.get_context("spawn").Pool(count) as pool:
            found = pool.starmap(pick_times, [(address, url, PICKS)] * count, chunksize=1)
    return [each for part in found for each in part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--store", choices=["sqlite", "mysql"], action="append")
    parser.add_argument("--dlt", metavar="PYTHON", help="the Python of a venv that has dlt")
    arguments = parser.parse_args()
    for store in arguments.store or ["sqlite", "mysql"]:
        if store == "mysql" and isinstance(absent := find(store), Absent):
            print(absent.reason)
            continue
        compare_with_bare_loop(store, arguments.pages, arguments.dlt)
        compare_executors(store)
        if store == "mysql":
            compare_pickers(store)


if __name__ == "__main__":
    main()

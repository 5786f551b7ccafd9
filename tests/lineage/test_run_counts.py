"""Each run of an SQL is counted once, however often and by however many processes its event is stored."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import Engine

from platform_defs.lineage.sink.run_counts import Counts, SqlRun, count_runs, delete_older, read_counts
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now


def counted(engine: Engine, *runs: SqlRun) -> Counts:
    return transact(engine, lambda connection: count_runs(connection, runs))


def test_a_run_counts_once_per_sql_and_tenant(engine: Engine) -> None:
    assert counted(engine, SqlRun(1, "sql:a", "r1"), SqlRun(1, "sql:a", "r2"), SqlRun(1, "sql:a", "r1")) == {
        1: {"sql:a": 2}
    }
    assert counted(engine, SqlRun(1, "sql:a", "r2"), SqlRun(1, "sql:b", "r2"), SqlRun(2, "sql:a", "r1")) == {
        1: {"sql:a": 2, "sql:b": 1},
        2: {"sql:a": 1},
    }
    assert counted(engine) == {}


def test_two_processes_that_count_the_same_runs_agree(engine: Engine) -> None:
    runs = [SqlRun(1, f"sql:{number % 3}", f"r{number}") for number in range(60)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda start: counted(engine, *runs[start:], *runs[:start]), (0, 13, 29, 41)))
    assert list(read_counts(engine, 1)) == [{"sql:0": 20, "sql:1": 20, "sql:2": 20}]


def test_a_forgotten_run_stays_counted(engine: Engine) -> None:
    counted(engine, SqlRun(1, "sql:a", "r1"))
    assert delete_older(engine, now() + timedelta(minutes=1)) == 1
    assert list(read_counts(engine, 1)) == [{"sql:a": 1}]

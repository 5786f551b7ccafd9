"""Processes that write to one SQLite file: who waits is next, and nobody is kept out by one that always writes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from platform_defs.store.engine import Patience, open_engine, read, transact
from platform_defs.store.errors import StoreUnavailable
from tests.waiting import until

# Writes one transaction after the other, each of which takes some milliseconds, and counts them.
BUSY_WRITER = """
import sys
from sqlalchemy import text
from platform_defs.store.engine import open_engine, transact

engine = open_engine(sys.argv[1])

def work(connection):
    connection.execute(text("UPDATE written SET number = number + 1"))
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT max(i) FROM n"
    connection.execute(text(count))

while True:
    transact(engine, work)
"""
HOLDER = """
import sys
from sqlalchemy import text
from platform_defs.store.engine import open_engine, transact

def work(connection):
    print("holds it", flush=True)
    sys.stdin.read()

transact(open_engine(sys.argv[1]), work)
"""


@contextmanager
def process(code: str, url: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    running = subprocess.Popen([sys.executable, "-c", code, url], stdin=pipe, stdout=pipe, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def test_a_process_that_writes_all_the_time_lets_others_write_between_two_of_its_transactions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/busy.db"
    engine = open_engine(url)

    def written(connection: Connection) -> int:
        return int(connection.execute(text("SELECT number FROM written")).scalar_one())

    def create(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE written (number INTEGER)"))
        connection.execute(text("INSERT INTO written VALUES (0)"))

    try:
        transact(engine, create)
        waited = []
        with process(BUSY_WRITER, url):
            until("the other process to write", lambda: read(engine, written))
            for _ in range(20):
                before = read(engine, written)
                waited.append(transact(engine, written) - before)
        # SQLite's own way of waiting misses dozens of transactions, because it looks every 100 ms at last
        assert sum(waited) <= 3 * len(waited), waited
    finally:
        engine.dispose()


def test_who_waits_too_long_for_another_process_is_told_so_and_writes_when_that_one_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/held.db"
    engine = open_engine(url, patience=Patience(sqlite_busy=0.1))

    def write(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE IF NOT EXISTS anything (number INTEGER)"))

    try:
        with process(HOLDER, url) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "holds it\n"
            with pytest.raises(StoreUnavailable, match="another process wrote"):
                transact(engine, write, attempts=2)
        transact(engine, write)
    finally:
        engine.dispose()

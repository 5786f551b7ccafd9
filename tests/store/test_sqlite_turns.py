"""Processes that write to one SQLite file: who waits is next, and nobody is kept out by one that always writes."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import Connection, text

from platform_defs.store import sqlite_turns
from platform_defs.store.engine import open_engine, read, transact
from tests.waiting import PATIENCE_S, until

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
from platform_defs.store.sqlite_turns import turn

with turn(sys.argv[1], 1.0):
    print("has the turn", flush=True)
    sys.stdin.read()
"""


@contextmanager
def process(code: str, argument: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    running = subprocess.Popen([sys.executable, "-c", code, argument], stdin=pipe, stdout=pipe, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def test_a_process_that_writes_all_the_time_lets_others_write_between_two_of_its_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/busy.db"
    engine = open_engine(url)
    queue = sqlite_turns._lock
    numbers_before: list[int] = []

    def note_and_queue(file: int, database: str) -> bool:
        numbers_before.append(read(engine, written))
        return queue(file, database)

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
            monkeypatch.setattr(sqlite_turns, "_lock", note_and_queue)
            # on a busy machine a turn may be long in coming
            monkeypatch.setattr(sqlite_turns, "LONGEST_WAIT_S", PATIENCE_S)
            for _ in range(20):
                number = transact(engine, written)
                waited.append(number - numbers_before[-1])
                # so that each time there is somebody to wait for
                until("the other process to write again", lambda number=number: read(engine, written) > number)
        # SQLite's own way of waiting misses dozens of transactions, because it looks every 100 ms at last. The median,
        # because a busy machine may leave this process without a processor for a while.
        assert median(waited) <= 10, waited
    finally:
        engine.dispose()


def test_a_process_that_has_the_turn_and_hangs_keeps_nobody_from_writing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/held.db"
    engine = open_engine(url)

    def write(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE IF NOT EXISTS anything (number INTEGER)"))

    try:
        with process(HOLDER, f"{tmp_path}/held.db") as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "has the turn\n"
            for _ in range(5):
                transact(engine, write)
            # only the first one has waited, and what it waits with is gone when the other process is
            assert len(waiting_threads()) == 1
        until("nobody to wait for the turn", lambda: not waiting_threads())
    finally:
        engine.dispose()


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sqlite-turn"]

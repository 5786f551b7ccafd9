"""How much a multi-row upsert saves over row by row: 1,000 records into ing_record, on SQLite and MySQL.

Run it as `python -m bench.store`. Client and server share this machine, so MySQL's numbers contain both.
"""

import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, case, create_engine, text
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.sql.dml import Insert

from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.ingest import ing_record
from platform_defs.store.upsert import upsert
from tests.needs import Absent, find

ROWS = 1000
ROUNDS = 5
KEY = ["provenance_code", "endpoint_name", "provider_id"]


def records(round_number: int) -> list[dict[str, Any]]:
    return [
        {
            "provenance_code": "bench",
            "endpoint_name": "works",
            "provider_id": f"{round_number}-{number}",
            "updated_at": datetime.now(UTC),
            "record": {"title": f"Record {number}", "abstract": "x" * 300},
        }
        for number in range(ROWS)
    ]


def newer(incoming: Any) -> ColumnElement[bool]:
    return incoming.updated_at > ing_record.c.updated_at


def multi_row(engine: Engine, rows: list[dict[str, Any]]) -> None:
    with engine.begin() as connection:
        upsert(connection, ing_record, rows, key=KEY, when=newer)


def row_by_row(engine: Engine, rows: list[dict[str, Any]]) -> None:
    statement = for_one_row(engine)
    with engine.begin() as connection:
        for row in rows:
            connection.execute(statement, row)


def commit_each(engine: Engine, rows: list[dict[str, Any]]) -> None:
    statement = for_one_row(engine)
    for row in rows:
        with engine.begin() as connection:
            connection.execute(statement, row)


def for_one_row(engine: Engine) -> Insert:
    """Built once, so that SQLAlchemy compiles it once: what a careful author would run per row."""
    if engine.dialect.name == "sqlite":
        on_sqlite = sqlite.insert(ing_record)
        new = on_sqlite.excluded
        changes = {"updated_at": new.updated_at, "record": new.record}
        return on_sqlite.on_conflict_do_update(index_elements=KEY, set_=changes, where=newer(new))
    on_mysql = mysql.insert(ing_record)
    inserted = on_mysql.inserted
    return on_mysql.on_duplicate_key_update(
        [(name, case((newer(inserted), inserted[name]), else_=ing_record.c[name])) for name in ("record", "updated_at")]
    )


def median_seconds(engine: Engine, way: Callable[[Engine, list[dict[str, Any]]], None]) -> float:
    taken = []
    for number in range(ROUNDS):
        rows = records(number)
        with engine.begin() as connection:
            connection.execute(ing_record.delete())
        started = time.perf_counter()
        way(engine, rows)
        taken.append(time.perf_counter() - started)
    return sorted(taken)[ROUNDS // 2]


def report(name: str, engine: Engine) -> None:
    migrate.upgrade(engine)
    multi_row(engine, records(0))
    base = median_seconds(engine, multi_row)
    print(f"{name}: {ROWS} rows, median of {ROUNDS} rounds into an empty table")
    print(f"  multi-row upsert, one transaction   {base * 1000:8.1f} ms")
    for label, way in (("row by row, one transaction", row_by_row), ("row by row, a commit each", commit_each)):
        seconds = median_seconds(engine, way)
        print(f"  {label:<35} {seconds * 1000:8.1f} ms   ratio {seconds / base:6.1f}x")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{folder}/bench.db")
        report("SQLite", engine)
        engine.dispose()
    found = find("mysql")
    if isinstance(found, Absent):
        print(f"MySQL: not run, {found.reason}")
        return
    server = make_url(found).set(drivername="mysql+mysqlconnector").update_query_dict({"ssl_disabled": "true"})
    name = f"platform_bench_{uuid.uuid4().hex[:12]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"))
    engine = open_engine(server.set(database=name))
    try:
        report("MySQL", engine)
    finally:
        engine.dispose()
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name}"))
        admin.dispose()


if __name__ == "__main__":
    main()

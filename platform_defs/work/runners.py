"""The runners that exist: each keeps a row with its slots, its heartbeat and what it counted."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, select, update

from platform_defs.store.engine import ATTEMPTS, read, transact
from platform_defs.store.tables.work import runners
from platform_defs.store.upsert import upsert
from platform_defs.work.processes import ProcessId, hostname

HEARTBEAT_S = 2.0
# Three heartbeats and a pause of the machine: beyond it nobody counts on the runner.
ALIVE_FOR = timedelta(seconds=10)
FORGET_AFTER = timedelta(days=1)


@dataclass(frozen=True)
class Runner:
    name: str
    hostname: str
    process: ProcessId
    slots: int
    busy: int
    definitions: str | None
    load_error: str | None
    metrics: str | None
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None

    def is_alive(self) -> bool:
        """By its process where that can be seen, elsewhere by its heartbeat."""
        if self.stopped_at is not None:
            return False
        if self.hostname == hostname() and not self.process.is_alive():
            return False
        return datetime.now(UTC) - self.heartbeat_at < ALIVE_FOR


def name_of(process: ProcessId) -> str:
    return f"{hostname()}:{process.pid}:{process.started}"


def beat(
    engine: Engine,
    process: ProcessId,
    *,
    slots: int,
    busy: int,
    definitions: str | None,
    load_error: str | None,
    metrics: str,
    started_at: datetime,
) -> None:
    row = {
        "name": name_of(process),
        "hostname": hostname(),
        "pid": process.pid,
        "process_started": process.started,
        "slots": slots,
        "busy": busy,
        "definitions": definitions,
        "load_error": load_error,
        "metrics": metrics,
        "started_at": started_at,
        "heartbeat_at": datetime.now(UTC),
    }
    changing = ["busy", "definitions", "load_error", "metrics", "heartbeat_at"]
    transact(engine, lambda connection: upsert(connection, runners, [row], key=["name"], update=changing))


def stop(engine: Engine, process: ProcessId) -> None:
    mine = runners.c.name == name_of(process)
    transact(engine, lambda c: c.execute(update(runners).where(mine).values(stopped_at=datetime.now(UTC), busy=0)))


def forget_old(engine: Engine) -> None:
    old = runners.c.heartbeat_at < datetime.now(UTC) - FORGET_AFTER
    transact(engine, lambda connection: connection.execute(delete(runners).where(old)))


def every(engine: Engine, *, attempts: int = ATTEMPTS) -> list[Runner]:
    def load(connection: Connection) -> list[Row[Any]]:
        return list(connection.execute(select(runners).order_by(runners.c.started_at)).all())

    return [
        Runner(
            name=row.name,
            hostname=row.hostname,
            process=ProcessId(row.pid, row.process_started),
            slots=row.slots,
            busy=row.busy,
            definitions=row.definitions,
            load_error=row.load_error,
            metrics=row.metrics,
            started_at=row.started_at,
            heartbeat_at=row.heartbeat_at,
            stopped_at=row.stopped_at,
        )
        for row in read(engine, load, attempts=attempts)
    ]


def alive(engine: Engine, *, attempts: int = ATTEMPTS) -> list[Runner]:
    return [runner for runner in every(engine, attempts=attempts) if runner.is_alive()]

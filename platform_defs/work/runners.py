"""The record that every runner keeps of itself in the database: slots, heartbeat, loaded definitions, metrics."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, select, update

from platform_defs.store.engine import ATTEMPTS, read, transact
from platform_defs.store.tables.work import runners
from platform_defs.store.upsert import upsert
from platform_defs.work.processes import ProcessId, hostname

HEARTBEAT_S = 2.0
# Longer than three heartbeats and a short pause of the machine: a runner that is silent for longer counts as gone.
ALIVE_FOR = timedelta(seconds=10)
DELETE_AFTER = timedelta(days=1)
# How long runs may take to end when their runner is stopped. A stop of the whole platform takes at most 10 s.
STOP_GRACE_S = 3.0
# After this time a runner that was told to stop leaves, whatever it has not closed yet.
LEAVE_AFTER_S = 5.0


@dataclass(frozen=True)
class RunnerRecord:
    """What a runner wrote about itself with its last heartbeat."""

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
        """Needs a fresh heartbeat, and on this machine also a living process."""
        if self.stopped_at is not None:
            return False
        if self.hostname == hostname() and not self.process.is_alive():
            return False
        return datetime.now(UTC) - self.heartbeat_at < ALIVE_FOR

    def hangs(self) -> bool:
        """Its process lives on this machine without a heartbeat: nobody may wait for it, although it still listens."""
        is_left = self.stopped_at is None and self.hostname == hostname() and self.process.is_alive()
        return is_left and not self.is_alive()


def record_heartbeat(
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
    """Writes what the runner says of itself; to be called every HEARTBEAT_S, or it counts as gone after ALIVE_FOR."""
    row = {
        "name": process.full_name,
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


def record_stop(engine: Engine, process: ProcessId) -> None:
    stopped = update(runners).where(runners.c.name == process.full_name).values(stopped_at=datetime.now(UTC), busy=0)
    transact(engine, lambda connection: connection.execute(stopped))


def delete_old_records(engine: Engine) -> None:
    old = runners.c.heartbeat_at < datetime.now(UTC) - DELETE_AFTER
    transact(engine, lambda connection: connection.execute(delete(runners).where(old)))


def all_runners(engine: Engine, *, attempts: int = ATTEMPTS) -> list[RunnerRecord]:
    """Records of all runners of the last day, also of those that are gone, in the order in which they started."""

    def load(connection: Connection) -> list[Row[Any]]:
        return list(connection.execute(select(runners).order_by(runners.c.started_at)).all())

    return [
        RunnerRecord(
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


def living_runners(engine: Engine, *, attempts: int = ATTEMPTS) -> list[RunnerRecord]:
    return [runner for runner in all_runners(engine, attempts=attempts) if runner.is_alive()]


def why_none_is_alive(engine: Engine, *, attempts: int = ATTEMPTS) -> str:
    """What a person should know, and do, if there is no living runner."""
    hanging = [describe_hanging(runner) for runner in all_runners(engine, attempts=attempts) if runner.hangs()]
    return "; ".join(hanging) or "no runner is alive; `platform up` or `platform runner` starts one"


def describe_hanging(runner: RunnerRecord) -> str:
    return (
        f"runner {runner.name} hangs: it has sent no heartbeat since {runner.heartbeat_at:%F %T} UTC;"
        f" `kill -9 {runner.process.pid}` ends it, its runs go on, and `platform up` starts another one by itself"
    )

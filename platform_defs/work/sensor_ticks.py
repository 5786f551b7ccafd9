"""When each sensor last ticked, noted in our own database for processes that know nothing of Dagster."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine, select

from platform_defs.store.engine import ATTEMPTS, read, transact
from platform_defs.store.tables.work import sensor_ticks
from platform_defs.store.upsert import upsert


@dataclass(frozen=True)
class SensorTick:
    name: str
    succeeded_at: datetime | None
    failed_at: datetime | None
    error: str | None


def note_tick(engine: Engine, name: str, error: str | None) -> None:
    """To be called at the end of every tick; `error` is what went wrong in it."""
    at = "succeeded_at" if error is None else "failed_at"
    row = {"name": name, at: datetime.now(UTC), "error": error}
    transact(engine, lambda connection: upsert(connection, sensor_ticks, [row], key=["name"], update=[at, "error"]))


def last_ticks(engine: Engine, *, attempts: int = ATTEMPTS) -> list[SensorTick]:
    query = select(sensor_ticks).order_by(sensor_ticks.c.name)
    found = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return [SensorTick(row.name, row.succeeded_at, row.failed_at, row.error) for row in found]

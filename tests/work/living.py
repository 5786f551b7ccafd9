"""A runner that lives, as far as others can see: its heartbeat is fresh for as long as a test lasts."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, update

from platform_defs.store.engine import transact
from platform_defs.store.tables.work import runners as table
from platform_defs.work import runners
from platform_defs.work.processes import ProcessId
from tests.waiting import PATIENCE_S


def living_runner(engine: Engine, *, busy: int = 0) -> None:
    runners.record_heartbeat(
        engine,
        ProcessId.current(),
        slots=8,
        busy=busy,
        definitions=None,
        load_error=None,
        metrics="",
        started_at=datetime.now(UTC),
    )
    mine = table.c.name == ProcessId.current().full_name
    beats = update(table).where(mine).values(heartbeat_at=datetime.now(UTC) + timedelta(seconds=PATIENCE_S))
    transact(engine, lambda connection: connection.execute(beats))

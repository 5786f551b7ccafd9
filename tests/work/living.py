"""A runner that lives, as far as others can see: it has just sent a heartbeat."""

from datetime import UTC, datetime

from sqlalchemy import Engine

from platform_defs.work import runners
from platform_defs.work.processes import ProcessId


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

"""Everything that is stuck, of all systems: for /readyz, the metrics, the asset check and `platform runner status`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from platform_defs.arrivals.executions.stuck import find_stuck_tasks
from platform_defs.arrivals.kinds_of_work import MODEL_RUN
from platform_defs.ingest.kinds_of_work import INGEST_DRAIN
from platform_defs.settings import Settings
from platform_defs.sources.named import source_of_resource
from platform_defs.store.engine import ATTEMPTS, read
from platform_defs.work.rows import INGEST_RUN
from platform_defs.work.stuck import Stuck, StuckRules, find_stuck_work

SHOWN = 3
OK = "ok"


def find_stuck(engine: Engine, settings: Settings, *, attempts: int = ATTEMPTS) -> list[Stuck]:
    """The longest stuck first."""
    now, patience = datetime.now(UTC), timedelta(seconds=settings.stuck_after_s)
    rules = StuckRules(
        patience=patience,
        reserved=settings.reserved_slots,
        first=(MODEL_RUN,),
        sharing=(INGEST_RUN, INGEST_DRAIN),
        resource_limit=lambda resource: settings.queries_of(source_of_resource(resource)),
    )
    timeout = timedelta(seconds=settings.model_timeout_s)
    tasks = read(engine, lambda connection: find_stuck_tasks(connection, patience, timeout, now), attempts=attempts)
    return sorted([*find_stuck_work(engine, rules, now, attempts=attempts), *tasks], key=lambda stuck: stuck.since)


def describe(stuck: Sequence[Stuck]) -> str:
    """One line; OK if nothing is stuck."""
    if not stuck:
        return OK
    others = f" (and {len(stuck) - SHOWN} more)" if len(stuck) > SHOWN else ""
    shown = "; ".join(f"{one.problem} (since {one.since:%F %T} UTC)" for one in stuck[:SHOWN])
    return f"{len(stuck)} stuck: {shown}{others}"

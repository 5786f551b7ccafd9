"""Failures of the recovery, in `lineage_recovery`, which /readyz, /metrics and an asset check show."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, delete, select

from platform_defs.errors import one_line
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_recovery
from platform_defs.store.upsert import upsert

_table = lineage_recovery.c
_NAME = "lineage_apply"
# One failure may be a store that restarts. A second one, half a minute later, is a reason to look.
DEGRADED_AFTER = 2


@dataclass(frozen=True, slots=True)
class RecoveryFailures:
    """How often the recovery has failed in a row, since when, and the error of the last failure."""

    count: int
    since: datetime
    error: str

    @property
    def is_degraded(self) -> bool:
        return self.count >= DEGRADED_AFTER


def record_failure(engine: Engine, error: BaseException) -> None:
    """Counts one more failure in a row, with its error."""
    row = {"name": _NAME, "failures": 1, "since": now(), "error": one_line(error)}

    def again(incoming: object) -> dict[str, object]:
        return {"failures": _table.failures + 1, "error": incoming.error}  # type: ignore[attr-defined]

    transact(engine, lambda connection: upsert(connection, lineage_recovery, [row], key=("name",), update=again))


def record_success(engine: Engine) -> None:
    if read_failures(engine) is not None:
        transact(engine, lambda connection: connection.execute(delete(lineage_recovery).where(_table.name == _NAME)))


def read_failures(engine: Engine, *, attempts: int = 5) -> RecoveryFailures | None:
    query = select(_table.failures, _table.since, _table.error).where(_table.name == _NAME)
    row = read(engine, lambda connection: connection.execute(query).one_or_none(), attempts=attempts)
    return None if row is None else RecoveryFailures(row.failures, row.since, row.error)

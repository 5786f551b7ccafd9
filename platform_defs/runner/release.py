"""Frees a row of work that is stuck: ends its process, closes its run and the row, and says who did it."""

import getpass
import logging
import signal

from dagster import DagsterInstance
from sqlalchemy import Engine

from platform_defs.runner.closing import close_run_and_row
from platform_defs.work import rows
from platform_defs.work.errors import WorkError
from platform_defs.work.processes import hostname
from platform_defs.work.rows import EndedBy, Work

_log = logging.getLogger(__name__)


def whoami() -> str:
    return f"{getpass.getuser()}@{hostname()}"


def release_row(instance: DagsterInstance, engine: Engine, work_id: int) -> Work:
    """Returns the row as it was. Raises WorkError if it does not exist or is closed.

    A process on another machine is ended by the runner there, as soon as that finds that it no longer has the row.
    """
    row = rows.get(engine, work_id)
    if row.status.is_final:
        raise WorkError(f"row of work {work_id} is {row.status}: there is nothing to release")
    rows.request_cancel(engine, row.run_id, EndedBy.RELEASE)
    # The run is closed before its process is killed: whoever sees the process die finds nothing left to report.
    reason = f"released by {whoami()}"
    close_run_and_row(instance, engine, row, reason, by=EndedBy.RELEASE, canceled=True)
    if row.process is not None and row.is_alive_here:
        row.process.signal_group(signal.SIGKILL)
    _log.warning("row of work %d (%s, run %s) was %s", row.id, row.kind, row.run_id, reason)
    return row

"""Rows of work that a runner left behind: closed if their process is gone, adopted if it is alive on this machine."""

from platform_defs.runner.closing import close_run_and_row
from platform_defs.runner.run_processes import RunProcesses
from platform_defs.work import leases
from platform_defs.work.each import for_each
from platform_defs.work.rows import EndedBy, Work


def recover_local_rows(processes: RunProcesses) -> None:
    """Takes over the rows of runners of this machine that are gone, without waiting for their leases to run out."""
    gone = [
        row
        for row in leases.running_rows(processes.engine)
        if (runner := row.local_runner) is not None and not runner.is_alive()
    ]

    def recover(row: Work) -> None:
        if row.process is None:
            leases.give_back(processes.engine, str(row.lease_owner), [row.id])
        elif not row.process.is_alive():
            last_words = processes.crash_logs.quote(row.run_id)
            reason = f"process {row.process.pid} ended while its runner was away{last_words}"
            close_run_and_row(processes.instance, processes.engine, row, reason, by=EndedBy.HOST)
        else:
            processes.adopt(row, row.process)

    for_each(gone, recover, lambda row: f"row of work {row.id} was left by a runner and cannot be taken over")


def close_expired_rows(processes: RunProcesses) -> None:
    """Handles leases that ran out: their runner, here or on another machine, is gone or cut off from the database."""
    expired = [row for row in leases.rows_with_expired_lease(processes.engine) if row.id not in processes]

    def settle(row: Work) -> None:
        if row.process is None:
            leases.give_back(processes.engine, str(row.lease_owner), [row.id])  # The run was never started.
        elif row.is_alive_here:
            # A runner that is alive renews the lease itself, as soon as the database lets it.
            if row.local_runner is not None and not row.local_runner.is_alive():
                processes.adopt(row, row.process)
        else:
            reason = f"the lease of runner {row.lease_owner} ran out"
            close_run_and_row(processes.instance, processes.engine, row, reason, by=EndedBy.HOST)

    for_each(expired, settle, lambda row: f"the lease of row of work {row.id} ran out, and it cannot be closed")

"""Rows of work that a runner left behind: closed if their process is gone, adopted if it is alive on this machine."""

from platform_defs.runner.closing import close_run_and_row
from platform_defs.runner.run_processes import RunProcesses
from platform_defs.work import leases, runners
from platform_defs.work.each import for_each
from platform_defs.work.rows import EndedBy, Work


class Contact:
    """How long this runner has written its heartbeats without a longer pause, by the monotonic clock.

    When the database was away, the leases of all runners have run out, although their runs go on. Until every runner
    had the time of a lease to renew its own, a lease of another machine says nothing.
    """

    def __init__(self) -> None:
        self._since = self._last = float("-inf")

    def note_heartbeat(self, now: float) -> None:
        if now - self._last > runners.ALIVE_FOR.total_seconds():
            self._since = now
        self._last = now

    def outlasts_lease(self, now: float) -> bool:
        """Whether the runners of other machines have had the time to renew their leases."""
        is_fresh = now - self._last <= runners.ALIVE_FOR.total_seconds()
        return is_fresh and now - self._since >= leases.LEASE.total_seconds()


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


def close_expired_rows(processes: RunProcesses, *, of_other_machines: bool) -> None:
    """Handles leases that ran out: their runner is gone or cut off from the database.

    Those of other machines are left alone unless `of_other_machines` (see Contact).
    """
    expired = [
        row
        for row in leases.rows_with_expired_lease(processes.engine)
        if row.id not in processes and (of_other_machines or row.local_runner is not None)
    ]

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

"""No batch stays stuck: a runner that is away, a run that is handed over and dies, a process that hangs."""

import os
import signal

from sqlalchemy import select

from platform_defs.store.engine import read
from platform_defs.store.tables.work import work
from platform_defs.work import leases
from platform_defs.work.rows import OPEN_STATUSES
from tests.arrivals.world import work_of
from tests.e2e.arrivals_site import Site
from tests.waiting import until

AWAY_S = 60


def _pid_of_run(site: Site, run_id: str) -> int:
    """The process of a run, whichever row of work it belongs to."""

    def look() -> int | None:
        query = select(work.c.pid).where(work.c.run_id == run_id)
        return read(site.engine, lambda connection: connection.execute(query).scalar_one_or_none())

    return int(until("the run to have a process", look) or 0)


def test_a_batch_handed_over_while_the_runner_hung_is_executed_and_recovers_from_the_death_of_its_run(
    site: Site,
) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    runner = site.platform.up["pids"]["runner"]
    os.kill(runner, signal.SIGSTOP)
    try:
        assert site.post("A", wait=0)["triggeredModels"][0]["status"] == "RUNNING"
        (task,) = site.log("slow")
        until(
            "the row to be handed to Dagster",
            lambda: work_of(site.engine, task).lease_owner == leases.DAGSTER,
            AWAY_S,
        )
    finally:
        os.kill(runner, signal.SIGCONT)
    until("the run to have read its tables", lambda: site.log("slow")[0].versions, AWAY_S)
    site.pace(0)
    os.kill(_pid_of_run(site, site.log("slow")[0].run_id), signal.SIGKILL)
    log = until(
        "the batch to succeed", lambda: log if (log := site.log("slow"))[-1].status == "SUCCESS" else [], AWAY_S
    )
    assert [task.status for task in log] == ["FAILED", "SUCCESS"]
    # the run that Dagster made belongs to the row for which it was made: there is no second one
    rows = [work_of(site.engine, task) for task in log]
    assert [row.run_id for row in rows] == [task.run_id for task in log]
    until("no row to stay open", lambda: all(work_of(site.engine, task).status not in OPEN_STATUSES for task in log))

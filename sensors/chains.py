"""The sensor of chains, for runs whose process is gone and nodes whose table has arrived; and the nightly schedule."""

from dagster import (
    DefaultSensorStatus,
    Definitions,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from assets.chains.jobs import chain_run
from assets.chains.retention import chains_retention
from platform_defs.chain_nodes.arrival import wake_arrived
from platform_defs.chains.runs.recovery import continue_runs
from platform_defs.settings import Settings
from platform_defs.store.engine import transact
from platform_defs.work.wake import wake
from sensors.nightly import nightly
from sensors.ticks import noted_tick


@sensor(
    job=chain_run,
    minimum_interval_seconds=5,
    default_status=DefaultSensorStatus.RUNNING,
    description="For the platform itself: continues runs of chains whose process is gone, and nodes that waited.",
)
def chains(context: SensorEvaluationContext) -> SkipReason:
    """Writes rows of work for runs that nothing drives; the runner, or the sensor work_recovery, executes them."""
    with noted_tick(chains.name) as engine:
        continued = continue_runs(engine)
        woken = transact(engine, wake_arrived)
    if continued or woken:
        wake(Settings.load().home)
    return SkipReason(f"{len(continued)} runs whose process was gone go on, {woken} nodes have what they waited for")


def definitions() -> Definitions:
    return Definitions(
        sensors=[chains],
        schedules=[nightly(chains_retention, "41 3 * * *", "forgets runs of chains that ended long ago")],
    )

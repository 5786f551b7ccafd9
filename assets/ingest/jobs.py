"""The job that drains tasks of ingest which nobody works on."""

from dagster import OpExecutionContext, job, op

from platform_defs.ingest.kinds_of_work import INGEST_DRAIN
from platform_defs.ingest.materialisation import Listener, drain_everything
from resources.database import DatabaseResource
from resources.http import HttpResource
from resources.ingest import IngestResource


@op
def drain_tasks(context: OpExecutionContext, ingest: IngestResource) -> None:
    """Works on every task that is due, whoever planned it; windows that it completes are reported by a sensor."""
    listener = Listener(on_trouble=context.log.warning, on_progress=context.log.info)
    with ingest.opened() as environment:
        ended = drain_everything(environment, listener)
    for plan_key, states in ended.items():
        told = ", ".join(f"{count} {state.lower()}" for state, count in sorted(states.items()))
        context.log.info(f"{plan_key}: tasks {told}")
    if not ended:
        context.log.info("nothing to do: no task is due")
    context.add_output_metadata({"tasks": sum(states.total() for states in ended.values())})


@job(
    name=INGEST_DRAIN,
    description="For the platform itself: fetches what was planned and what nobody works on.",
    # its own, because Dagster would otherwise rebuild the sensor that lists this job
    resource_defs={"ingest": IngestResource(database=DatabaseResource(), http=HttpResource())},
)
def ingest_drain() -> None:
    drain_tasks()

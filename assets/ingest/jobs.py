"""The job that drains tasks of ingest which nobody works on."""

from dagster import OpExecutionContext, job, op

from platform_defs.ingest.kinds_of_work import INGEST_DRAIN
from resources.database import DatabaseResource
from resources.http import HttpResource
from resources.ingest import IngestResource


@op
def drain_tasks(context: OpExecutionContext, ingest: IngestResource) -> None:
    """Works on every task that is due, whoever planned it; windows that it completes are reported by a sensor."""
    with ingest.opened() as environment:
        ended = environment.executor().drain_everything()
    context.log.info(f"{ended} tasks ended" if ended else "nothing to do: no task is due")
    context.add_output_metadata({"tasks": ended})


@job(
    name=INGEST_DRAIN,
    description="For the platform itself: fetches what was planned and what nobody works on.",
    # its own, because Dagster would otherwise rebuild the sensor that lists this job
    resource_defs={"ingest": IngestResource(database=DatabaseResource(), http=HttpResource())},
)
def ingest_drain() -> None:
    drain_tasks()

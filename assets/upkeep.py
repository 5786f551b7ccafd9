"""The upkeep of Dagster's own tables: what is beyond its retention is deleted every night."""

from datetime import UTC, datetime

from dagster import Definitions, OpExecutionContext, job, op

from assets.retention import tell_deleted
from platform_defs.dagster_storage.retention import prune
from platform_defs.settings import Settings


@op
def prune_dagster(context: OpExecutionContext) -> None:
    """Deletes finished runs and events beyond PLATFORM_DAGSTER_RETENTION_DAYS, but no partition's last result."""
    pruned = prune(context.instance, days=Settings.load().dagster_retention_days, at=datetime.now(UTC))
    tell_deleted(context, pruned)


@job(description="For the platform itself: deletes Dagster's old rows; the last result of a partition stays.")
def dagster_retention() -> None:
    prune_dagster()


def definitions() -> Definitions:
    return Definitions(jobs=[dagster_retention])

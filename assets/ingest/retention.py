"""The nightly job of ingest: forgets the batches of plans that ended long ago, and old events of cursors."""

from datetime import UTC, datetime

from dagster import OpExecutionContext, job, op

from assets.retention import tell_deleted
from platform_defs.ingest.retention import forget_old_rows
from platform_defs.settings import Settings
from resources.database import DatabaseResource


@op
def forget_old_batches(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Deletes batches and cursor events beyond PLATFORM_INGEST_RETENTION_DAYS that no open window needs."""
    counts = forget_old_rows(database.engine, days=Settings.load().ingest_retention_days, at=datetime.now(UTC))
    tell_deleted(context, counts)


@job(description="For the platform itself: forgets batches and cursor events of ingest that ended long ago.")
def ingest_retention() -> None:
    forget_old_batches()

"""The nightly job of chains: forgets runs that ended long ago."""

from datetime import UTC, datetime

from dagster import OpExecutionContext, job, op

from assets.retention import tell_deleted
from platform_defs.chains.retention import forget_old_rows
from platform_defs.settings import Settings
from resources.database import DatabaseResource


@op
def forget_old_runs(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Deletes ended runs with their nodes, the audit and request keys, beyond their retention."""
    counts = forget_old_rows(database.engine, days=Settings.load().chain_retention_days, at=datetime.now(UTC))
    tell_deleted(context, counts)


@job(description="For the platform itself: forgets runs of chains that ended long ago, and their audit.")
def chains_retention() -> None:
    forget_old_runs()

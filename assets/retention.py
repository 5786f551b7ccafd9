"""Upkeep of table arrival: what is too old is forgotten."""

from dataclasses import asdict
from datetime import UTC, datetime

from dagster import Definitions, OpExecutionContext, job, op

from platform_defs.arrivals.retention import forget_old_rows
from platform_defs.settings import Settings
from resources.database import DatabaseResource


@op
def forget_old_executions(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Ended tasks, finished deliveries and work, and what executions read, beyond their retention."""
    settings = Settings.load()
    forgotten = forget_old_rows(
        database.engine,
        days=settings.arrivals_retention_days,
        lookback_days=settings.arrivals_lookback_days,
        at=datetime.now(UTC),
    )
    context.log.info(f"forgot {forgotten}")
    context.add_output_metadata(asdict(forgotten))


@job(description="Forgets ended tasks, finished deliveries and finished work beyond their retention.")
def arrivals_retention() -> None:
    forget_old_executions()


def definitions() -> Definitions:
    return Definitions(jobs=[arrivals_retention])

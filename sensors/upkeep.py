"""The nightly schedule that keeps Dagster's own tables bounded."""

from dagster import DefaultScheduleStatus, Definitions, ScheduleDefinition

from assets.upkeep import dagster_retention


def definitions() -> Definitions:
    nightly = ScheduleDefinition(
        name="dagster_retention_nightly",
        description="For the platform itself: every night, deletes old rows of Dagster.",
        job=dagster_retention,
        cron_schedule="31 3 * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    return Definitions(schedules=[nightly])

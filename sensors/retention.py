"""When table arrival forgets what is too old: every night."""

from dagster import DefaultScheduleStatus, Definitions, ScheduleDefinition

from assets.retention import arrivals_retention


def definitions() -> Definitions:
    nightly = ScheduleDefinition(
        name="arrivals_retention_nightly",
        job=arrivals_retention,
        cron_schedule="11 3 * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    return Definitions(schedules=[nightly])

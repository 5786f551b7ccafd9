"""The schedule of a job of retention: every night, whether or not anybody looks into the UI."""

from dagster import DefaultScheduleStatus, JobDefinition, ScheduleDefinition


def nightly(job: JobDefinition, cron: str, deeds: str) -> ScheduleDefinition:
    """Runs the job at the time of the cron (UTC). No two have the same time, so as not to delete side by side."""
    return ScheduleDefinition(
        name=f"{job.name}_nightly",
        description=f"For the platform itself: every night, {deeds}.",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
    )

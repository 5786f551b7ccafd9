"""The nightly schedule that keeps Dagster's own tables bounded."""

from dagster import Definitions

from assets.upkeep import dagster_retention
from sensors.nightly import nightly


def definitions() -> Definitions:
    return Definitions(schedules=[nightly(dagster_retention, "31 3 * * *", "deletes old rows of Dagster")])

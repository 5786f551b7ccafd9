"""Dagster sensors and schedules: thin shells over decisions that the domain packages make."""

from dagster import Definitions

from sensors import arrivals, lineage, retention, work


def definitions() -> Definitions:
    return Definitions.merge(arrivals.definitions(), lineage.definitions(), retention.definitions(), work.definitions())

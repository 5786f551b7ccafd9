"""Table arrival in Dagster: source tables and models as assets, and the jobs that execute, report and forget."""

from dagster import Definitions

from assets.arrivals import jobs, model_assets


def definitions() -> Definitions:
    return Definitions.merge(jobs.definitions(), model_assets.definitions())

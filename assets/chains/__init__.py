"""Chains in Dagster: a job for each enabled chain, the generic job for other launchers, and the nightly one."""

from dagster import Definitions

from assets.chains import recording
from assets.chains.jobs import chain_run
from assets.chains.loading import chain_jobs, load_enabled_chains
from assets.chains.retention import chains_retention

# The runner finds this module by its name; it is imported here so that forked processes have it loaded.
__all__ = ["definitions", "recording"]


def definitions() -> Definitions:
    return Definitions(jobs=[chain_run, chains_retention, *chain_jobs(load_enabled_chains())])

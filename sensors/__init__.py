"""Dagster sensors and schedules, one module per system: thin shells over decisions that the systems make.

A new system adds itself to SYSTEMS.
"""

import os

from dagster import Definitions

from platform_defs.logs import format_unconfigured
from sensors import (
    arrivals,
    chain_lineage,
    chain_triggers,
    chains,
    ingest,
    lineage,
    lineage_tables,
    upkeep,
    work,
)

SYSTEMS = (
    arrivals,
    chain_lineage,
    chain_triggers,
    chains,
    ingest,
    lineage,
    lineage_tables,
    work,
    upkeep,
)


def definitions() -> Definitions:
    format_unconfigured(os.environ.get("PLATFORM_LOG_FORMAT", ""))
    return Definitions.merge(*(system.definitions() for system in SYSTEMS))

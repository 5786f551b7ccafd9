"""Dagster sensors and schedules, one module per system: thin shells over decisions that the systems make.

A new system adds itself to SYSTEMS.
"""

from dagster import Definitions

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
    return Definitions.merge(*(system.definitions() for system in SYSTEMS))

"""Dagster assets and jobs, one module or package per system. A new system adds itself to SYSTEMS."""

from dagster import Definitions

from assets import arrivals, chains, ingest, lineage, selfcheck, upkeep, webhooks

SYSTEMS = (arrivals, chains, ingest, lineage, selfcheck, webhooks, upkeep)


def definitions() -> Definitions:
    return Definitions.merge(*(system.definitions() for system in SYSTEMS))

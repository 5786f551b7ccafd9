"""Dagster assets and jobs, one module or package per system. A new system adds itself to SYSTEMS."""

from dagster import AssetSpec, Definitions

from assets import arrivals, chains, ingest, lineage, lineage_tables, selfcheck, upkeep, webhooks

SYSTEMS = (chains, ingest, lineage, selfcheck, webhooks, upkeep)


def definitions() -> Definitions:
    # Read once: dependencies of two snapshots could form a cycle, and then nothing would load.
    tables = lineage_tables.load_tables()
    of_arrivals = arrivals.definitions(tables)
    besides = {asset.key for asset in of_arrivals.assets or () if isinstance(asset, AssetSpec)}
    return Definitions.merge(
        of_arrivals,
        lineage_tables.definitions(tables, besides),
        *(system.definitions() for system in SYSTEMS),
    )

"""Table arrival in Dagster: source tables and models as assets, and the jobs that execute, report and forget."""

from collections.abc import Mapping

from dagster import AssetKey, Definitions

from assets.arrivals import jobs, model_assets
from platform_defs.lineage.tables.dependencies import TableAsset


def definitions(tables: Mapping[AssetKey, TableAsset]) -> Definitions:
    """`tables` are those of lineage, of which some are source tables too."""
    return Definitions.merge(jobs.definitions(), model_assets.definitions(tables))

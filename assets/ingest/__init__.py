"""Ingest in Dagster: for each active endpoint a harvest, a backfill and an update asset, and the job that drains."""

from dagster import AssetsDefinition, Definitions

from assets.ingest.complete import complete_check
from assets.ingest.endpoint_assets import bucket_asset, window_asset
from assets.ingest.jobs import ingest_drain
from assets.ingest.loading import load_endpoints
from assets.ingest.retention import ingest_retention
from platform_defs.ingest.codes import Operation
from platform_defs.ingest.spec.model import CompiledSpec

_MAKERS = {Operation.HARVEST: window_asset, Operation.BACKFILL: window_asset, Operation.UPDATE: bucket_asset}


def definitions() -> Definitions:
    made: list[tuple[CompiledSpec, AssetsDefinition]] = []
    for endpoint in load_endpoints():
        for operation, compiled in endpoint.specs.items():
            if (asset := _MAKERS[operation](compiled)) is not None:
                made.append((compiled, asset))
    return Definitions(
        assets=[asset for _, asset in made],
        asset_checks=[complete_check(compiled.spec) for compiled, _ in made],
        jobs=[ingest_drain, ingest_retention],
    )

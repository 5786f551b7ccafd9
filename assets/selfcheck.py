"""The selfcheck: assets that use the database and the graph, and show in the UI whether these work."""

from dataclasses import asdict

from dagster import (
    AssetExecutionContext,
    AssetSelection,
    Definitions,
    MaterializeResult,
    StaticPartitionsDefinition,
    asset,
    define_asset_job,
)

from platform_defs.selfcheck import check_database, check_graph
from resources.database import DatabaseResource
from resources.graph import GraphResource

# of everything that is only for the platform itself
GROUP = "platform"
CHECKS = 20


@asset(group_name=GROUP, key_prefix="selfcheck")
def database(database: DatabaseResource) -> MaterializeResult[None]:
    """Checks that the database answers and is migrated, and shows how far its clock is off."""
    return MaterializeResult(metadata=asdict(check_database(database.engine)))


@asset(group_name=GROUP, key_prefix="selfcheck")
def graph(graph: GraphResource) -> MaterializeResult[None]:
    """Checks that the graph stores and returns a node."""
    return MaterializeResult(metadata=asdict(check_graph(graph.graph)))


@asset(
    group_name=GROUP,
    key_prefix="selfcheck",
    partitions_def=StaticPartitionsDefinition([f"check-{number:02d}-of-{CHECKS}" for number in range(1, CHECKS + 1)]),
)
def side_by_side(context: AssetExecutionContext, database: DatabaseResource) -> MaterializeResult[None]:
    """Checks the database once per partition. Backfill all of them to see runs execute side by side."""
    context.log.info(context.partition_key)
    return MaterializeResult(metadata=asdict(check_database(database.engine)))


selfcheck = define_asset_job(
    "selfcheck",
    AssetSelection.assets(database, graph),
    description="For the platform itself: shows whether a run reaches database and graph. Launch it to try a run.",
)


def definitions() -> Definitions:
    return Definitions(assets=[database, graph, side_by_side], jobs=[selfcheck])

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

GROUP = "selfcheck"


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
    partitions_def=StaticPartitionsDefinition([f"{number:02d}" for number in range(20)]),
)
def side_by_side(context: AssetExecutionContext, database: DatabaseResource) -> MaterializeResult[None]:
    """Checks the database once per partition. A backfill of all partitions shows that runs execute side by side."""
    context.log.info(f"partition {context.partition_key}")
    return MaterializeResult(metadata=asdict(check_database(database.engine)))


selfcheck = define_asset_job(
    "selfcheck",
    AssetSelection.assets(database, graph),
    description="Touches database and graph through the same resources as every other run.",
)


def definitions() -> Definitions:
    return Definitions(assets=[database, graph, side_by_side], jobs=[selfcheck])

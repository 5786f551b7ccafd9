"""The selfcheck: two assets that touch database and graph and show in the UI what they found."""

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
    """The database answers, is migrated, and its clock agrees with ours."""
    return MaterializeResult(metadata=asdict(check_database(database.engine)))


@asset(group_name=GROUP, key_prefix="selfcheck")
def graph(graph: GraphResource) -> MaterializeResult[None]:
    """The graph keeps what is written to it."""
    return MaterializeResult(metadata=asdict(check_graph(graph.graph)))


@asset(
    group_name=GROUP,
    key_prefix="selfcheck",
    partitions_def=StaticPartitionsDefinition([f"{number:02d}" for number in range(20)]),
)
def side_by_side(context: AssetExecutionContext, database: DatabaseResource) -> MaterializeResult[None]:
    """The database's answer once per partition: a backfill of all shows runs launched side by side."""
    context.log.info(f"partition {context.partition_key}")
    return MaterializeResult(metadata=asdict(check_database(database.engine)))


selfcheck = define_asset_job(
    "selfcheck",
    AssetSelection.assets(database, graph),
    description="Touches database and graph through the same resources as every other run.",
)


def definitions() -> Definitions:
    return Definitions(assets=[database, graph, side_by_side], jobs=[selfcheck])

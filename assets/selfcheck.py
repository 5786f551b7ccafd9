"""The selfcheck: assets that use the database and the graph, and show in the UI whether these work."""

from dataclasses import asdict

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetSelection,
    AssetSpec,
    Definitions,
    MaterializeResult,
    StaticPartitionsDefinition,
    asset,
    asset_check,
    define_asset_job,
)
from sqlalchemy import Engine

from platform_defs.selfcheck import check_database, check_graph
from platform_defs.settings import Settings
from platform_defs.stuck import OK, describe, find_stuck
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


WORK = AssetSpec(
    AssetKey(["selfcheck", "work"]),
    group_name=GROUP,
    description="Rows of work, sensors and executions of models: whether they move on.",
)
NOTHING_STUCK = "nothing_stuck"


def stuck_outcome(engine: Engine) -> AssetCheckEvaluation:
    """The outcome of the check, also for the sensor that reports it whenever it changes."""
    found = describe(find_stuck(engine, Settings.load()))
    return AssetCheckEvaluation(WORK.key, NOTHING_STUCK, passed=found == OK, description=found)


@asset_check(asset=WORK.key, name=NOTHING_STUCK, description="Rows of work, sensors and executions all move on.")
def nothing_stuck(database: DatabaseResource) -> AssetCheckResult:
    outcome = stuck_outcome(database.engine)
    return AssetCheckResult(passed=outcome.passed, description=outcome.description)


def definitions() -> Definitions:
    return Definitions(assets=[database, graph, side_by_side, WORK], asset_checks=[nothing_stuck], jobs=[selfcheck])

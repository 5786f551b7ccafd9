"""Source tables and published models as assets, built from the database; their partitions are opTimes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

from dagster import (
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    Failure,
    IdentityPartitionMapping,
    In,
    MaterializeResult,
    MetadataValue,
    Nothing,
    Out,
    multi_asset_check,
    op,
)
from sqlalchemy.exc import SQLAlchemyError

from assets.arrivals.names import OP_TIMES, batches_of, model_key, op_of_model, table_key
from assets.arrivals.reports import execution_metadata, note_reported
from assets.lineage_tables import table_metadata
from platform_defs.arrivals.errors import ArrivalsError
from platform_defs.arrivals.executions.model_run import run_for_operator
from platform_defs.arrivals.failed_batches import EXECUTIONS_SUCCEEDED, failed_outcome, find_failed_batches
from platform_defs.arrivals.lateness import find_late_batches
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.arrivals.models.due import Due
from platform_defs.arrivals.models.model import Model
from platform_defs.arrivals.on_time import ON_TIME, check_outcome
from platform_defs.errors import StoreError, one_line
from platform_defs.lineage.tables.dependencies import TableAsset
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.work.definition_versions import read_digest
from platform_defs.work.wake import wake
from resources.database import DatabaseResource
from resources.model_execution import ModelExecutionResource

# The metadata of the code location that holds the digest of the rows from which it was loaded.
ROWS = "platform/rows"


@dataclass(frozen=True)
class PublishedModels:
    """The models from which definitions are built, and the digest of their rows."""

    models: list[Model]
    rows: str


def load_published_models() -> PublishedModels:
    """Reads the models with a connection that is closed at once, because a fork server must hold none."""
    url = Settings.load().database_url
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return PublishedModels([], "none")  # nothing was ever set up here, so nothing was published
    try:
        with DatabaseResource().open() as engine:
            # The digest is read first: a model that is published in between then causes another load and is not missed.
            rows, models = read(engine, lambda connection: (read_digest(connection), load_models(connection)))
    except SQLAlchemyError as error:
        raise StoreError(f"the published models cannot be read: {one_line(error)}") from None
    return PublishedModels([model for model in models.values() if model.published], rows)


def model_asset(model: Model) -> AssetsDefinition:
    """The asset of a model. Launching a partition in the UI executes the model as an arrival would."""
    key = model_key(model.model_id)
    # Inputs are numbered, because Dagster would take two tables whose names differ in a dot or a dash for one input.
    tables = {f"table_{number}": table_key(name) for number, name in enumerate(model.depends_on)}

    @op(name=op_of_model(model.model_id), ins={name: In(Nothing) for name in tables}, out=Out(Nothing))
    def execute(
        context: AssetExecutionContext, model_execution: ModelExecutionResource
    ) -> Iterator[MaterializeResult[None]]:
        environment = model_execution.environment
        try:
            result = run_for_operator(environment, model.model_id, context.partition_key, context.run.run_id)
        except ArrivalsError as error:
            raise Failure(str(error), allow_retries=False) from None
        if result.next_task_id is not None:
            wake(Settings.load().home)
        yield MaterializeResult(asset_key=key, metadata=execution_metadata(result))
        note_reported(environment.engine, result)

    spec = AssetSpec(
        key,
        # Tables have every opTime, and so also those of the model's period.
        deps=[AssetDep(key, partition_mapping=IdentityPartitionMapping()) for key in tables.values()],
        # Dagster says that it finds no automation, because arrivals begin executions without a sensor.
        description=f"{model.name}. Runs by itself once its tables have arrived: {', '.join(model.depends_on)}.",
        group_name="models",
        partitions_def=batches_of(model.period),
        code_version=str(model.version),
        kinds={"sql"},
        metadata={
            "kpis": ", ".join(kpi.kpi_id for kpi in model.kpis),
            "dimensions": ", ".join(model.dimensions) or "none",
            "source": model.source,
            "due": model.due or "no time",
            "sql": MetadataValue.md(f"```sql\n{model.sql}\n```"),
        },
    )
    return AssetsDefinition(
        node_def=execute, keys_by_input_name=tables, keys_by_output_name={"result": key}, specs=[spec]
    )


def table_specs(models: Sequence[Model], of_lineage: Mapping[AssetKey, TableAsset]) -> Iterator[AssetSpec]:
    """External assets for the tables that the models depend on, with what lineage knows of them."""
    dependents: dict[str, list[str]] = defaultdict(list)
    for model in models:
        for table in model.depends_on:
            dependents[table].append(model.model_id)
    for table, model_ids in sorted(dependents.items()):
        known = of_lineage.get(table_key(table))
        yield AssetSpec(
            table_key(table),
            deps=[] if known is None else [AssetKey(list(key)) for key in known.upstream],
            metadata={} if known is None else table_metadata(known),
            description=f"A source table. Models that wait for it: {', '.join(model_ids)}.",
            group_name="tables",
            partitions_def=OP_TIMES,
            kinds={"table"},
        )


def executions_check(model: Model) -> AssetChecksDefinition:
    """The check of a model that fails while the last execution of any recent batch failed."""
    days = Settings.load().arrivals_lookback_days
    spec = AssetCheckSpec(
        EXECUTIONS_SUCCEEDED,
        asset=model_key(model.model_id),
        description=f"Every batch that was executed in the last {days} days succeeded when it was executed last.",
    )

    @multi_asset_check(name=f"{op_of_model(model.model_id)}__{EXECUTIONS_SUCCEEDED}", specs=[spec])
    def check(database: DatabaseResource) -> Iterator[AssetCheckResult]:
        since = datetime.now(UTC) - timedelta(days=Settings.load().arrivals_lookback_days)
        failed = read(database.engine, lambda connection: find_failed_batches(connection, since, [model.model_id]))
        outcome = failed_outcome(failed.get(model.model_id, ()))
        yield AssetCheckResult(passed=outcome.passed, description=outcome.description, metadata=outcome.metadata)

    return check


def on_time_check(model: Model) -> AssetChecksDefinition:
    """The check of a model that says when its tables are due."""
    due = Due.parse(model.due or "")
    by = model.due if due is None else f"{due.words} ({Settings.load().zone})"
    spec = AssetCheckSpec(ON_TIME, asset=model_key(model.model_id), description=f"All tables arrive by {by}.")

    @multi_asset_check(name=f"{op_of_model(model.model_id)}__{ON_TIME}", specs=[spec])
    def check(database: DatabaseResource) -> Iterator[AssetCheckResult]:
        settings, now = Settings.load(), datetime.now(UTC)
        zone, lookback = ZoneInfo(settings.zone), timedelta(days=settings.arrivals_lookback_days)
        late = read(
            database.engine,
            lambda connection: find_late_batches(connection, zone, now, lookback, [model.model_id]),
        )
        outcome = check_outcome(late.get(model.model_id, ()), zone)
        yield AssetCheckResult(passed=outcome.passed, description=outcome.description, metadata=outcome.metadata)

    return check


def definitions(tables: Mapping[AssetKey, TableAsset] = MappingProxyType({})) -> Definitions:
    """`tables` are those of lineage, of which some are source tables too."""
    published = load_published_models()
    return Definitions(
        assets=[*table_specs(published.models, tables), *(model_asset(model) for model in published.models)],
        asset_checks=[
            *(executions_check(model) for model in published.models),
            *(on_time_check(model) for model in published.models if model.due is not None),
        ],
        metadata={ROWS: published.rows},
    )

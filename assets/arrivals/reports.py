"""What Dagster is told of arrivals, executions and late tables, mostly outside of any run.

Dagster is told first, and the database notes it afterwards. A process that dies in between reports the same event
twice, which does no harm.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetMaterialization,
    DagsterInstance,
    MetadataValue,
)
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from assets.arrivals.names import model_key, table_key
from assets.shown_checks import newest_evaluations
from platform_defs.arrivals.checks import CheckOutcome, ShownCheck, is_news, needs_evaluation
from platform_defs.arrivals.dagster_reports import (
    ArrivalReport,
    mark_arrivals_reported,
    mark_executions_reported,
    unreported_arrivals,
    unreported_executions,
)
from platform_defs.arrivals.errors import failure_text
from platform_defs.arrivals.executions.model_run import ExecutionResult
from platform_defs.arrivals.partitions import partition_of, partitions_by_name, partitions_name
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.store.engine import read, transact

# An event costs Dagster 10 to 40 ms, so this many stay well below the minute that a tick of a sensor may take.
ARRIVALS_AT_ONCE = 500
EXECUTIONS_AT_ONCE = 100
# A run tells Dagster within this time after it closed its task, or it died in between.
TELLING = timedelta(seconds=30)
_log = logging.getLogger(__name__)
# What this process has found last. Dagster shows no result of a check while its model is executed again, and the same
# failure is not worth a second line in the log.
_found: dict[AssetCheckKey, CheckOutcome] = {}


def report_arrivals(instance: DagsterInstance, engine: Engine, since: datetime) -> list[ArrivalReport]:
    """Reports arrivals that Dagster has not been told of as materialisations of their tables; returns them."""
    reports = read(engine, lambda connection: unreported_arrivals(connection, since, ARRIVALS_AT_ONCE))
    if reports:
        add_partitions(instance, [report.op_time for report in reports])
        for report in reports:
            for materialization in _table_materializations(report):
                instance.report_runless_asset_event(materialization)
        transact(engine, lambda connection: mark_arrivals_reported(connection, reports))
    return reports


def report_executions(instance: DagsterInstance, engine: Engine, since: datetime, now: datetime) -> int:
    """Reports executions whose run stored its values and died before it told Dagster; returns how many."""
    results = read(
        engine, lambda connection: unreported_executions(connection, since, now - TELLING, EXECUTIONS_AT_ONCE)
    )
    if results:
        materializations = [model_materialization(result) for result in results]
        add_partitions(instance, [result.op_time for result in results])
        for materialization in materializations:
            instance.report_runless_asset_event(materialization)
        task_ids = [result.task_id for result in results]
        transact(engine, lambda connection: mark_executions_reported(connection, task_ids, now))
    return len(results)


def report_checks(instance: DagsterInstance, name: str, outcomes: Mapping[str, CheckOutcome]) -> None:
    """Evaluates this check of the models anew where Dagster shows something else, and logs what changed."""
    keys = {model_id: AssetCheckKey(model_key(model_id), name) for model_id in outcomes}
    shown = {
        key: ShownCheck(evaluation.passed, evaluation.description, is_shown)
        for key, (evaluation, is_shown) in newest_evaluations(instance, list(keys.values())).items()
    }
    evaluations = []
    for model_id, key in keys.items():
        outcome = outcomes[model_id]
        if needs_evaluation(outcome, shown.get(key)):
            evaluations.append(
                AssetCheckEvaluation(
                    key.asset_key,
                    name,
                    passed=outcome.passed,
                    description=outcome.description,
                    metadata=outcome.metadata,
                )
            )
        if is_news(outcome, shown.get(key)) and outcome != _found.get(key):
            _log.log(logging.INFO if outcome.passed else logging.WARNING, "model %s: %s", model_id, outcome.description)
        _found[key] = outcome
    for evaluation in evaluations:
        instance.report_runless_asset_event(evaluation)


def execution_metadata(result: ExecutionResult) -> dict[str, Any]:
    """What a materialisation of a model says of its execution. The UI plots whatever is a number over the batches."""
    settings = Settings.load()
    host = "127.0.0.1" if settings.api_host in ("0.0.0.0", "::") else settings.api_host
    return {
        "computeCount": result.counts.computed,
        "storageCount": result.counts.stored,
        "dagster/row_count": result.counts.computed,
        "missing tables": ", ".join(result.missing_tables) or "none",
        "task": result.task_id,
        "task command": f"platform models tasks {result.model_id} --op-time {result.op_time}",
        "task page": MetadataValue.url(f"http://{host}:{settings.api_port}/api/open/kpi/tasks/{result.task_id}"),
        **{f"{kpi_id} total": float(total) for kpi_id, total in result.counts.totals.items()},
    }


def model_materialization(result: ExecutionResult) -> AssetMaterialization:
    return AssetMaterialization(
        asset_key=model_key(result.model_id),
        partition=partition_of(result.op_time, result.period),
        metadata=execution_metadata(result),
        # Dagster compares it with the version of the definition, and shows partitions of an older one as outdated.
        tags={} if result.version is None else {CODE_VERSION_TAG: str(result.version)},
    )


def note_reported(engine: Engine, result: ExecutionResult) -> None:
    """Notes that the run has told Dagster.

    If that fails the run goes on, because the sensor then only reports the execution once more.
    """
    try:
        transact(engine, lambda connection: mark_executions_reported(connection, [result.task_id], datetime.now(UTC)))
    except (PlatformError, SQLAlchemyError) as error:
        _log.warning("task %d will be reported twice: %s", result.task_id, failure_text(error))


def add_partitions(instance: DagsterInstance, op_times: Sequence[str]) -> None:
    """Makes the batches partitions, under the name of all batches and under that of their period."""
    for name, keys in partitions_by_name(op_times).items():
        instance.add_dynamic_partitions(name, keys)


def add_partitions_of_period(instance: DagsterInstance, period: str) -> None:
    """Lists the batches that were known before any model had this period."""
    known = set(instance.get_dynamic_partitions(partitions_name(period)))
    every = instance.get_dynamic_partitions(partitions_name(None))
    missing = [key for key in every if partition_of(key, period) is not None and key not in known]
    if missing:
        instance.add_dynamic_partitions(partitions_name(period), missing)


def _table_materializations(report: ArrivalReport) -> list[AssetMaterialization]:
    metadata: dict[str, Any] = {"arrived as": report.table}
    if report.arrival_time is not None:
        metadata["arrival time"] = MetadataValue.timestamp(report.arrival_time)
    partition = partition_of(report.op_time)
    return [
        AssetMaterialization(asset_key=table_key(dependency), partition=partition, metadata=metadata)
        for dependency in report.dependencies
    ]

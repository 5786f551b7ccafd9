"""Source tables and published models as assets of one opTime partition space, built from the database."""

import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from dagster import (
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    DynamicPartitionsDefinition,
    Failure,
    In,
    MaterializeResult,
    MetadataValue,
    Nothing,
    Out,
    multi_asset_check,
    op,
)
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.arrivals import lateness
from platform_defs.arrivals.dagster_reports import mark_executions_reported
from platform_defs.arrivals.errors import ArrivalsError
from platform_defs.arrivals.execution import ExecutionResult, described, run_for_operator
from platform_defs.arrivals.lateness import LateBatch
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.arrivals.models.model import Model
from platform_defs.errors import PlatformError, StoreError, one_line
from platform_defs.settings import Settings
from platform_defs.store.engine import read, transact
from platform_defs.work.definition_versions import read_digest
from platform_defs.work.wake import wake
from resources.database import DatabaseResource
from resources.model_execution import ModelExecutionResource

OP_TIMES = DynamicPartitionsDefinition(name="op_time")
ON_TIME = "on_time"
# names on the code location which rows it was loaded from
ROWS = "platform/rows"
_PARTITION = re.compile(r"[A-Za-z0-9_:.-]{1,64}", re.ASCII)
_log = logging.getLogger(__name__)


def table_key(name: str) -> AssetKey:
    return AssetKey(["tables", name])


def model_key(model_id: str) -> AssetKey:
    return AssetKey(["models", model_id])


def partition_of(op_time: str) -> str | None:
    """ETL jobs may write any text as a batch; one that cannot be a partition is shown without."""
    return op_time if _PARTITION.fullmatch(op_time) and "..." not in op_time else None


def op_name(model_id: str) -> str:
    """Letters and digits as they are, the rest by number: two models never share an op, as `a.b` and `a-b` would."""
    return "model_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in model_id)


def facts(ended: ExecutionResult) -> dict[str, Any]:
    """What a materialisation says of its execution."""
    return {
        "computeCount": ended.counts.computed,
        "storageCount": ended.counts.stored,
        "missing tables": ", ".join(ended.missing_tables) or "none",
        "task": ended.task_id,
    }


def materialized(ended: ExecutionResult) -> AssetMaterialization:
    return AssetMaterialization(
        asset_key=model_key(ended.model_id), partition=partition_of(ended.op_time), metadata=facts(ended)
    )


def note_reported(engine: Engine, ended: ExecutionResult) -> None:
    """After Dagster was told. What cannot be noted is told once more by the sensor: no reason to fail the run."""
    try:
        transact(engine, lambda connection: mark_executions_reported(connection, [ended.task_id], datetime.now(UTC)))
    except (PlatformError, SQLAlchemyError) as error:
        _log.warning("task %d will be reported twice: %s", ended.task_id, described(error))


def model_asset(model: Model) -> AssetsDefinition:
    """The model's asset: a launch in the UI is the operator's will, and executes as an arrival would."""
    key = model_key(model.model_id)
    # numbered: Dagster would make one input of two tables whose names differ in a dot or a dash
    tables = {f"table_{number}": table_key(name) for number, name in enumerate(model.depends_on)}

    @op(name=op_name(model.model_id), ins={name: In(Nothing) for name in tables}, out=Out(Nothing))
    def execute(
        context: AssetExecutionContext, model_execution: ModelExecutionResource
    ) -> Iterator[MaterializeResult[None]]:
        try:
            ended = run_for_operator(
                model_execution.environment, model.model_id, context.partition_key, context.run.run_id
            )
        except ArrivalsError as error:
            raise Failure(str(error), allow_retries=False) from None
        if ended.next_task_id is not None:
            wake(Settings.load().home)
        yield MaterializeResult(asset_key=key, metadata=facts(ended))
        note_reported(model_execution.database.engine, ended)

    spec = AssetSpec(
        key,
        deps=list(tables.values()),
        description=model.name,
        group_name="models",
        partitions_def=OP_TIMES,
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


def table_specs(models: Sequence[Model]) -> Iterator[AssetSpec]:
    waiting: dict[str, list[str]] = defaultdict(list)
    for model in models:
        for table in model.depends_on:
            waiting[table].append(model.model_id)
    for table, model_ids in sorted(waiting.items()):
        yield AssetSpec(
            table_key(table),
            description=f"A source table; {', '.join(model_ids)} wait for it.",
            group_name="tables",
            partitions_def=OP_TIMES,
            kinds={"table"},
        )


def on_time_check(model: Model) -> AssetChecksDefinition:
    spec = AssetCheckSpec(ON_TIME, asset=model_key(model.model_id), description=f"All tables arrive by {model.due}.")

    @multi_asset_check(name=f"{op_name(model.model_id)}_{ON_TIME}", specs=[spec])
    def check(database: DatabaseResource) -> Iterator[AssetCheckResult]:
        settings = Settings.load()
        zone, lookback = ZoneInfo(settings.zone), timedelta(days=settings.arrivals_lookback_days)
        found = read(
            database.engine,
            lambda connection: lateness.find_late_batches(
                connection, zone, datetime.now(UTC), lookback, [model.model_id]
            ),
        )
        yield AssetCheckResult(**judged(found.get(model.model_id, ()), zone))

    return check


def judged(late: Sequence[LateBatch], zone: ZoneInfo) -> dict[str, Any]:
    """What an evaluation of the check says."""
    if not late:
        return {"passed": True, "description": "all tables that are due have arrived", "metadata": {}}
    batches = [
        f"batch {found.op_time} lacks {', '.join(found.tables)}, due {found.due_at.astimezone(zone):%F %H:%M %Z}"
        for found in late
    ]
    return {
        "passed": False,
        "description": "; ".join(batches),
        "metadata": {
            "opTime": ", ".join(found.op_time for found in late),
            "tables": ", ".join(sorted({table for found in late for table in found.tables})),
        },
    }


@dataclass(frozen=True)
class Stored:
    """What definitions are built from, and which rows these were."""

    models: list[Model]
    rows: str


def stored() -> Stored:
    """Read at load, with a connection that ends with it: a fork server must hold none."""
    url = Settings.load().database_url
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return Stored([], "none")  # nothing was ever set up here, so nothing was published
    try:
        with DatabaseResource().opened() as engine:
            # the rows first: a model that is published in between is then loaded once more, not missed
            rows, models = read(engine, lambda connection: (read_digest(connection), load_models(connection)))
    except SQLAlchemyError as error:
        raise StoreError(f"the published models cannot be read: {one_line(error)}") from None
    return Stored([model for model in models.values() if model.published], rows)


def definitions() -> Definitions:
    found = stored()
    return Definitions(
        assets=[*table_specs(found.models), *(model_asset(model) for model in found.models)],
        asset_checks=[on_time_check(model) for model in found.models if model.due is not None],
        metadata={ROWS: found.rows},
    )

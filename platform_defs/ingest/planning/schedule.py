"""Schedule instances: who asked for plans, when, with which parameters, and why none was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, insert, update

from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_schedule_instance


@dataclass(frozen=True)
class TriggerContext:
    """Who asks: a scheduler such as Dagster with its job and run, or a command."""

    trigger: Trigger
    scheduler_code: str
    scheduler_job_id: str | None = None
    scheduler_log_id: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


def record_trigger(
    engine: Engine,
    context: TriggerContext,
    provenance_code: str,
    endpoint_name: str,
    operation: Operation,
    now: datetime,
) -> int:
    """Writes the root of everything that this trigger leads to; returns its id."""
    row = {
        "scheduler_code": context.scheduler_code,
        "scheduler_job_id": context.scheduler_job_id,
        "scheduler_log_id": context.scheduler_log_id,
        "trigger_type_code": context.trigger,
        "triggered_at": now,
        "trigger_params": dict(context.params),
        "provenance_code": provenance_code,
        "endpoint_name": endpoint_name,
        "operation_code": operation,
    }

    def write(connection: Connection) -> int:
        (schedule_id,) = connection.execute(insert(ing_schedule_instance).values(row)).inserted_primary_key or (0,)
        return int(schedule_id)

    return transact(engine, write)


def record_compile_failure(engine: Engine, schedule_instance_id: int, problems: Sequence[str]) -> None:
    """What does not compile makes no plan: the reasons stay with the trigger."""
    mine = ing_schedule_instance.c.id == schedule_instance_id
    values = {"record_remarks": {"compiled": False, "problems": list(problems)}}
    transact(engine, lambda connection: connection.execute(update(ing_schedule_instance).where(mine).values(values)))

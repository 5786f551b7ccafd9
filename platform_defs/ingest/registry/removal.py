"""Removes sources: their rows of the Registry, and then the ledger and the records of what was fetched from them."""

from collections.abc import Collection

from sqlalchemy import Connection, Engine, Table, delete, func, or_, select

from platform_defs.ingest.codes import TaskStatus
from platform_defs.ingest.registry.loading import VERSION_COUNTER
from platform_defs.ingest.registry.sections import EFFECTIVE_TABLES
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import (
    ing_endpoint_block,
    ing_outbox,
    ing_partition_limit,
    ing_plan,
    ing_plan_slice,
    ing_record,
    ing_record_quarantine,
    ing_schedule_instance,
    ing_signal,
    ing_task,
    ing_task_run,
    ing_task_run_batch,
)
from platform_defs.store.tables.ingest_cursors import ing_cursor, ing_cursor_event
from platform_defs.store.tables.rate_gate import rate_gate, rate_gate_lease
from platform_defs.store.tables.registry import reg_provenance
from platform_defs.work.definition_versions import bump

_LEDGER: tuple[Table, ...] = (
    *(ing_record, ing_record_quarantine, ing_signal, ing_endpoint_block, ing_partition_limit),
    *(ing_cursor_event, ing_cursor),
    *(ing_task_run_batch, ing_task_run, ing_task, ing_plan_slice, ing_plan, ing_schedule_instance),
)


def end_sources(engine: Engine, codes: Collection[str]) -> None:
    """Deletes the sources from the Registry, so that nothing new of them is planned."""

    def work(connection: Connection) -> None:
        deleted = 0
        for table in (*EFFECTIVE_TABLES, reg_provenance):
            deleted += connection.execute(delete(table).where(table.c.provenance_code.in_(codes))).rowcount
        if deleted:
            bump(connection, VERSION_COUNTER)

    transact(engine, work)


def count_executing(engine: Engine, codes: Collection[str]) -> int:
    """How many tasks of these sources an executor works on."""
    task = ing_task.c
    busy = task.status_code.in_([TaskStatus.DISPATCHED, TaskStatus.EXECUTING])
    query = select(func.count()).select_from(ing_task).where(task.provenance_code.in_(codes), busy)
    return int(read(engine, lambda connection: connection.execute(query).scalar_one()))


def forget_sources(engine: Engine, codes: Collection[str]) -> None:
    """Deletes everything that was fetched from the sources, and how; whoever still works on a task loses it."""

    def work(connection: Connection) -> None:
        for table in _LEDGER:
            connection.execute(delete(table).where(table.c.provenance_code.in_(codes)))
        keys = [f"ingest:{code}" for code in codes]
        for gates in (rate_gate, rate_gate_lease):
            # of the source itself, or of one of its endpoints or credentials: another code may begin with this one
            own = [
                or_(gates.c.gate_key == key, gates.c.gate_key.startswith(f"{key}:", autoescape=True)) for key in keys
            ]
            connection.execute(delete(gates).where(or_(*own)))

    transact(engine, work)
    # Readers of the outbox have noted ids, which must not become those of other rows.
    delete_old_rows(engine, ing_outbox, ing_outbox.c.provenance_code.in_(codes))

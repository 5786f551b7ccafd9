"""Deletes chains with their runs. The audit stays, as it does when anything else is changed."""

from collections.abc import Collection

from sqlalchemy import Connection, Engine, delete, select

from platform_defs.chains.errors import Conflict
from platform_defs.chains.runs.operations import stop_run
from platform_defs.chains.states import ENDED_RUNS
from platform_defs.chains.stored_definitions import VERSION_COUNTER
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.chains import (
    job_chain_definition,
    job_request_key,
    job_run,
    job_run_checkpoint,
    job_run_drive,
    job_run_node,
)
from platform_defs.work.definition_versions import bump


def chain_ids_of(engine: Engine, names: Collection[str]) -> dict[str, str]:
    """The ids of the chains that exist, by name."""
    chain = job_chain_definition.c
    query = select(chain.name, chain.chain_id).where(chain.name.in_(names))
    return {row.name: row.chain_id for row in read(engine, lambda connection: connection.execute(query).all())}


def stop_runs(engine: Engine, chain_ids: Collection[str], *, actor: str) -> int:
    """Has open runs of these chains stopped; returns how many have not ended yet."""
    run = job_run.c
    query = select(run.run_id).where(run.chain_id.in_(chain_ids), run.status.not_in(sorted(ENDED_RUNS)))
    for run_id in read(engine, lambda connection: list(connection.scalars(query))):
        try:
            stop_run(engine, run_id, actor=actor, reason="its chain is removed")
        except Conflict:
            continue  # it has ended meanwhile
    return len(read(engine, lambda connection: list(connection.scalars(query))))


def delete_chains(engine: Engine, chain_ids: Collection[str]) -> None:
    """Deletes definitions and runs; the runs must have ended."""
    run, key = job_run.c, job_request_key.c

    def work(connection: Connection) -> None:
        bump(connection, VERSION_COUNTER)
        runs = list(connection.scalars(select(run.run_id).where(run.chain_id.in_(chain_ids))))
        for table in (job_run_node, job_run_checkpoint, job_run_drive, job_run):
            connection.execute(delete(table).where(table.c.run_id.in_(runs)))
        connection.execute(delete(job_request_key).where(key.object_id.in_([*chain_ids, *runs])))
        connection.execute(delete(job_chain_definition).where(job_chain_definition.c.chain_id.in_(chain_ids)))

    transact(engine, work)

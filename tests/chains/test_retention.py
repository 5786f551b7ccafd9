"""What chains forget: whole runs that ended long ago, never one that goes on."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, insert, select, update

from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.request_keys import RequestKey
from platform_defs.chains.retention import ForgottenCounts, forget_old_rows
from platform_defs.chains.runs.queries import list_drives, list_runs
from platform_defs.chains.states import RunStatus
from platform_defs.store.tables.chains import job_audit, job_request_key, job_run, job_run_checkpoint
from tests.chains.making import make_chain, node_rows, put, start

NOW = datetime.now(UTC)


def test_old_runs_go_with_all_that_belongs_to_them(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    key = RequestKey("s", "k", "a" * 64)
    old, going, late, fresh = (start(engine, chain, request_key=key if not n else None) for n in range(4))
    for run_id, status in ((old, RunStatus.FAILED), (going, RunStatus.RUNNING), (late, RunStatus.SUCCESS)):
        put(engine, run_id, status)
    with engine.begin() as connection:
        checkpoint = {"run_id": old, "node_id": "a", "checkpoint_json": 1}
        connection.execute(insert(job_run_checkpoint).values(checkpoint))
        long_ago = NOW - timedelta(days=100)
        connection.execute(update(job_run).where(job_run.c.run_id != fresh).values(created_at=long_ago))
        connection.execute(update(job_run).where(job_run.c.run_id == old).values(ended_at=long_ago))
        connection.execute(update(job_run).where(job_run.c.run_id == late).values(ended_at=NOW))
        connection.execute(update(job_request_key).values(created_at=long_ago))
        connection.execute(update(job_audit).values(created_at=long_ago))
    assert forget_old_rows(engine, days=0, at=NOW) == ForgottenCounts(request_keys=1)
    forgotten = forget_old_rows(engine, days=90, at=NOW)
    assert (forgotten.runs, forgotten.audit) == (1, 4)
    assert {row.run_id for row in list_runs(engine)} == {going, late, fresh}
    assert node_rows(engine, old) == {}
    assert list(list_drives(engine, old)) == []
    with engine.connect() as connection:
        assert connection.execute(select(job_run_checkpoint)).all() == []
    assert len(node_rows(engine, going)) == 3
    assert forget_old_rows(engine, days=90, at=NOW) == ForgottenCounts()

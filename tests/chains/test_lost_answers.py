"""A commit whose answer is lost is repeated: whatever was asked for has happened once, and is answered as done."""

import pytest
from sqlalchemy import Engine

from platform_defs.chains import definitions as chains
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.runs import operations
from platform_defs.chains.runs.queries import list_drives, list_runs
from platform_defs.chains.states import NodeStatus, RunStatus
from tests.chains.making import ACTOR, DIAMOND, audit_rows, make_chain, node_rows, put, run_row, start
from tests.lost_answers import losing_answer

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def actions(engine: Engine) -> list[str]:
    return [row.action for row in audit_rows(engine)]


def test_a_chain_is_created_and_changed_once(engine: Engine, types: NodeTypes) -> None:
    with losing_answer(engine):
        made = make_chain(engine, types)
    fields = {"name": "later", "description": None, "dag_json": DIAMOND, "version": 1, "actor": ACTOR}
    with losing_answer(engine):
        assert chains.update_chain(engine, types, made.chain_id, **fields).version == 2
    with losing_answer(engine):
        assert not chains.set_chain_enabled(engine, made.chain_id, False, actor=ACTOR).enabled
    assert actions(engine) == ["chain.create", "chain.update", "chain.disable"]


def test_a_run_is_started_and_stopped_once(engine: Engine, types: NodeTypes) -> None:
    chain = make_chain(engine, types)
    with losing_answer(engine):
        run_id = start(engine, chain)
    assert [row.run_id for row in list_runs(engine)] == [run_id]
    with losing_answer(engine):
        assert operations.stop_run(engine, run_id, actor=ACTOR) in (RunStatus.STOPPING, RunStatus.STOPPED)
    assert actions(engine) == ["chain.create", "run.start", "run.stop"]


def test_a_node_is_retried_and_completed_once(engine: Engine, types: NodeTypes) -> None:
    run_id = start(engine, make_chain(engine, types))
    put(engine, run_id, RunStatus.FAILED, a=NodeStatus.FAILED, b=NodeStatus.SKIPPED, c=NodeStatus.SKIPPED)
    with losing_answer(engine):
        state = operations.retry_node(engine, run_id, "a", actor=ACTOR)
    assert (state.status, state.attempt) == (NodeStatus.RETRYING, 2)
    assert (run_row(engine, run_id).status, len(list_drives(engine, run_id))) == ("RUNNING", 2)
    with losing_answer(engine):
        assert operations.complete_node(engine, run_id, "a", actor=ACTOR).status is NodeStatus.SUCCESS
    assert len(node_rows(engine, run_id)["a"].operations) == 2
    assert actions(engine) == ["chain.create", "run.start", "node.retry", "node.complete"]

"""Sequences that no single event shows: a run that is stopped before it begins, a wait that ends while nobody looks."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from platform_defs.chains.nodes.port import AttemptRequest, NodeResult, NodeStopped, NodeTypes, Outcome, Waiting
from platform_defs.chains.runs import operations
from platform_defs.chains.runs.happenings import Parked, RunEnded
from platform_defs.chains.states import RunStatus
from tests.chains.making import ACTOR, make_chain, start
from tests.chains.runs.driving import Script, drive, next_drive, node, node_row, run_row, start_run
from tests.waiting import PATIENCE_S

NIGHT = timedelta(hours=8)


class Table:
    """A node that waits for something that arrives outside; nobody tells its run that it has come."""

    def __init__(self) -> None:
        self.has_arrived = False

    def __call__(self, request: AttemptRequest) -> Outcome:
        if self.has_arrived:
            return NodeResult("arrived")
        return Waiting({"kind": "arrival"}, datetime.now(UTC) + timedelta(seconds=30))


def test_a_run_that_was_stopped_before_it_began_has_a_begin_once_a_node_is_retried(
    engine: Engine, types: NodeTypes
) -> None:
    run_id = start(engine, make_chain(engine, types))
    operations.stop_run(engine, run_id, actor=ACTOR)
    assert run_row(engine, run_id).started_at is None
    operations.retry_node(engine, run_id, "a", actor=ACTOR)
    next_drive(engine, run_id)
    assert drive(engine, run_id, Script()) == RunEnded(RunStatus.SUCCESS)
    run = run_row(engine, run_id)
    assert run.created_at <= run.started_at <= run.ended_at


def test_a_run_that_goes_on_in_another_drive_keeps_its_begin(engine: Engine) -> None:
    run_id, table = start_run(engine, [node("a")]), Table()
    assert isinstance(drive(engine, run_id, Script(a=table)), Parked)
    begun = run_row(engine, run_id).started_at
    table.has_arrived = True
    next_drive(engine, run_id)
    assert drive(engine, run_id, Script(a=table), clock=lambda: datetime.now(UTC) + NIGHT) == RunEnded(
        RunStatus.SUCCESS
    )
    assert run_row(engine, run_id).started_at == begun


@pytest.mark.parametrize("has_arrived", [True, False])
def test_what_a_node_waits_for_counts_although_its_time_ran_out_while_the_platform_was_down(
    engine: Engine, has_arrived: bool
) -> None:
    run_id, table = start_run(engine, [node("a", timeoutSeconds=3600)]), Table()
    assert isinstance(drive(engine, run_id, Script(a=table)), Parked)
    table.has_arrived = has_arrived
    next_drive(engine, run_id)
    end = drive(engine, run_id, Script(a=table), clock=lambda: datetime.now(UTC) + NIGHT)
    assert end == RunEnded(RunStatus.SUCCESS if has_arrived else RunStatus.FAILED)
    assert node_row(engine, run_id, "a").last_error == (None if has_arrived else "timed out after 3600 s")


def test_a_sub_run_that_ended_in_time_counts_although_its_parent_had_no_slot_before_its_time_ran_out(
    engine: Engine,
) -> None:
    run_id = start_run(engine, [node("a", timeoutSeconds=3600)])
    sub_run = start_run(engine, [node("x")], parent_run_id=run_id, parent_node_id="a", depth=1)

    def looks_at_sub_run(request: AttemptRequest) -> Outcome:
        if run_row(engine, sub_run).status == RunStatus.SUCCESS:
            return NodeResult()
        return Waiting({"kind": "run", "runId": sub_run}, datetime.now(UTC) + timedelta(seconds=60))

    assert isinstance(drive(engine, run_id, Script(a=looks_at_sub_run)), Parked)
    assert drive(engine, sub_run, Script()) == RunEnded(RunStatus.SUCCESS)
    next_drive(engine, run_id)
    end = drive(engine, run_id, Script(a=looks_at_sub_run), clock=lambda: datetime.now(UTC) + NIGHT)
    assert end == RunEnded(RunStatus.SUCCESS)


def test_an_attempt_that_uses_up_its_time_while_it_looks_stops_its_sub_run(engine: Engine) -> None:
    run_id = start_run(engine, [node("a", timeoutSeconds=0.2)])
    sub_run = start_run(engine, [node("x")], parent_run_id=run_id, parent_node_id="a", depth=1)

    def looks_for_long(request: AttemptRequest) -> Outcome:
        assert request.stop.wait(PATIENCE_S)
        raise NodeStopped

    assert drive(engine, run_id, Script(a=looks_for_long), may_park=False) == RunEnded(RunStatus.FAILED)
    assert run_row(engine, sub_run).status == "STOPPING"

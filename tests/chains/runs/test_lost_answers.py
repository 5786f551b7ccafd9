"""A drive goes on after a commit whose answer was lost: nothing is executed twice, and nothing is left behind."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from sqlalchemy import Engine, select

from platform_defs.chains.nodes.port import AttemptRequest, NodeFailed, NodeResult, Outcome, Waiting
from platform_defs.chains.runs.happenings import AttemptStarted, NodeEnded, Parked, RunEnded
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.store.tables.work import work
from tests.chains.runs.driving import Driving, Script, node, node_row, start_run, statuses
from tests.lost_answers import losing_answer

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)

DIAMOND = [node("a"), node("b", "a", retry={"maxAttempts": 2, "backoffMillis": 1}), node("c", "a"), node("d", "b", "c")]


def fails_at_first(request: AttemptRequest) -> Outcome:
    if request.attempt == 1:
        raise NodeFailed("no luck")
    return NodeResult()


def test_whichever_answer_is_lost_every_attempt_is_made_once_and_shown_once(engine: Engine) -> None:
    for number in count(1):
        run_id = start_run(engine, DIAMOND)
        script = Script(b=fails_at_first)
        with losing_answer(engine, number) as losing, Driving(engine, run_id, script) as driving:
            end = driving.wait()
        attempts = [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
        assert end == RunEnded(RunStatus.SUCCESS), number
        assert sorted(script.calls) == attempts, number
        assert set(statuses(engine, run_id).values()) == {"SUCCESS"}
        shown = driving.happenings
        assert sorted((one.node_id, one.attempt) for one in shown if isinstance(one, AttemptStarted)) == attempts
        ended = [one.node_id for one in shown if isinstance(one, NodeEnded) and one.status is NodeStatus.SUCCESS]
        assert sorted(ended) == ["a", "b", "c", "d"], number
        if not losing.is_lost:
            assert number > 5
            return


def test_whichever_answer_is_lost_a_failure_is_shown(engine: Engine) -> None:
    def fail(request: AttemptRequest) -> Outcome:
        raise NodeFailed("no luck")

    for number in count(1):
        run_id = start_run(engine, [node("a"), node("b", "a")])
        with losing_answer(engine, number) as losing, Driving(engine, run_id, Script(a=fail)) as driving:
            assert driving.wait() == RunEnded(RunStatus.FAILED), number
        assert statuses(engine, run_id) == {"a": "FAILED", "b": "SKIPPED"}
        assert [one.error for one in driving.happenings if isinstance(one, NodeEnded)] == ["no luck"], number
        if not losing.is_lost:
            assert number > 2
            return


def test_whichever_answer_is_lost_a_drive_that_waits_gives_its_slot_back(engine: Engine) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for number in count(1):
        run_id = start_run(engine, [node("a")])
        script = Script(a=lambda request: Waiting({"kind": "test"}, look_again_at=later))
        with losing_answer(engine, number) as losing, Driving(engine, run_id, script) as driving:
            assert isinstance(driving.wait(), Parked), number
        assert script.calls == [("a", 1)]
        assert node_row(engine, run_id, "a").status == NodeStatus.RUNNING
        with engine.connect() as connection:
            assert set(connection.execute(select(work.c.status)).scalars()) == {"QUEUED"}
        if not losing.is_lost:
            assert number > 2
            return

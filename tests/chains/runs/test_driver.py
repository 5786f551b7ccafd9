"""A run is driven by its tables: order, retries, failures, stops, operations by hand, waiting, deaths."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select, update

from platform_defs.chains.nodes.port import AttemptRequest, NodeFailed, NodeResult, NodeStopped, Outcome, Waiting
from platform_defs.chains.runs import operations, waking
from platform_defs.chains.runs.happenings import (
    AttemptFailed,
    AttemptStarted,
    Interrupted,
    LineLogged,
    NodeEnded,
    Parked,
    RunEnded,
    Superseded,
)
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run_checkpoint, job_run_node
from platform_defs.store.tables.work import work
from platform_defs.work import rows
from tests.chains.runs.driving import (
    Driving,
    Script,
    close_drive,
    drive,
    edges,
    next_drive,
    node,
    node_row,
    operate,
    run_row,
    start_run,
    statuses,
)
from tests.waiting import PATIENCE_S, until

DIAMOND = [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")]


def fails(message: str = "no luck", **options: Any) -> Any:
    def play(request: AttemptRequest) -> Outcome:
        raise NodeFailed(message, **options)

    return play


def waits_until_stopped(request: AttemptRequest) -> Outcome:
    assert request.stop.wait(PATIENCE_S)
    raise NodeStopped()


class Gate:
    """An attempt that ends when the test opens it, or when it is told to end."""

    def __init__(self, artifact: Any = None) -> None:
        self.opened = threading.Event()
        self.artifact = artifact

    def __call__(self, request: AttemptRequest) -> Outcome:
        while not self.opened.wait(0.01):
            if request.stop.reason is not None:
                raise NodeStopped()
        return NodeResult(self.artifact)


def test_nodes_run_after_all_that_they_depend_on(engine: Engine) -> None:
    run_id = start_run(engine, DIAMOND)
    script = Script(a=lambda request: NodeResult({"rows": 3}, checkpoint={"page": 2}))
    assert drive(engine, run_id, script) == RunEnded(RunStatus.SUCCESS)
    assert script.calls[0] == ("a", 1)
    assert script.calls[-1] == ("d", 1)
    assert set(statuses(engine, run_id).values()) == {"SUCCESS"}
    assert node_row(engine, run_id, "a").artifact_json == {"rows": 3}
    with engine.connect() as connection:
        assert connection.execute(select(job_run_checkpoint.c.checkpoint_json)).scalar_one() == {"page": 2}
    run = run_row(engine, run_id)
    assert run.status == "SUCCESS"
    assert run.started_at <= node_row(engine, run_id, "a").started_at <= run.ended_at


def test_at_most_so_many_nodes_run_at_a_time_and_as_many_as_may(engine: Engine) -> None:
    run_id = start_run(engine, [node(f"n{number}") for number in range(9)])
    together = threading.Barrier(3)

    def meet(request: AttemptRequest) -> Outcome:
        together.wait(PATIENCE_S)
        return NodeResult()

    script = Script(**{f"n{number}": meet for number in range(9)})
    assert drive(engine, run_id, script, parallel=3) == RunEnded(RunStatus.SUCCESS)
    assert script.most_at_once == 3


def test_a_failed_attempt_is_tried_again_and_keeps_its_error(engine: Engine) -> None:
    run_id = start_run(engine, [node("a", retry={"maxAttempts": 3, "backoffMillis": 1}), node("b", "a")])

    def second_time_lucky(request: AttemptRequest) -> Outcome:
        return NodeResult() if request.attempt == 3 else fails(f"attempt {request.attempt}")(request)

    script = Script(a=second_time_lucky)
    with Driving(engine, run_id, script) as driving:
        assert driving.wait() == RunEnded(RunStatus.SUCCESS)
    assert script.calls == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    row = node_row(engine, run_id, "a")
    assert (row.attempt, row.last_error) == (3, "attempt 2")
    errors = [item.error for item in driving.happenings if isinstance(item, AttemptFailed)]
    assert errors == ["attempt 1", "attempt 2"]


def test_below_a_failed_node_all_is_skipped_while_other_branches_finish(engine: Engine) -> None:
    gate = Gate()
    dag = [node("a"), node("b", "a"), node("c", "b"), node("x"), node("y", "x"), node("last", "c", "y")]
    run_id = start_run(engine, dag)
    with Driving(engine, run_id, Script(b=fails(), x=gate)) as driving:
        until("b has failed", lambda: statuses(engine, run_id)["last"] == "SKIPPED")
        assert run_row(engine, run_id).status == "RUNNING"
        gate.opened.set()
        assert driving.wait() == RunEnded(RunStatus.FAILED)
    expected = {"a": "SUCCESS", "b": "FAILED", "c": "SKIPPED", "x": "SUCCESS", "y": "SUCCESS", "last": "SKIPPED"}
    assert statuses(engine, run_id) == expected
    assert node_row(engine, run_id, "b").last_error == "no luck"


def test_any_exception_of_an_executor_fails_its_node_alone(engine: Engine) -> None:
    def breaks(request: AttemptRequest) -> Outcome:
        raise SystemExit("of a plug-in")

    run_id = start_run(engine, [node("a"), node("b", retry={"maxAttempts": 5})])
    script = Script(a=breaks, b=fails("refused", may_retry=False))
    assert drive(engine, run_id, script) == RunEnded(RunStatus.FAILED)
    assert node_row(engine, run_id, "a").last_error == "SystemExit: of a plug-in"
    assert ("b", 2) not in script.calls


def test_a_node_that_takes_too_long_is_ended_and_tried_again(engine: Engine) -> None:
    # on a busy machine further attempts may take longer than that, too
    slow = node("a", timeoutSeconds=0.05, retry={"maxAttempts": 100, "backoffMillis": 1, "backoffMultiplier": 1})
    run_id = start_run(engine, [slow])
    script = Script(a=lambda request: waits_until_stopped(request) if request.attempt == 1 else NodeResult())
    assert drive(engine, run_id, script) == RunEnded(RunStatus.SUCCESS)
    assert node_row(engine, run_id, "a").last_error == "timed out after 0.05 s"


def test_an_attempt_that_does_not_listen_is_given_up_and_its_result_discarded(engine: Engine) -> None:
    deaf = threading.Event()

    def ignores_the_signal(request: AttemptRequest) -> Outcome:
        deaf.wait(PATIENCE_S)
        return NodeResult("too late")

    run_id = start_run(engine, [node("a", timeoutSeconds=0.05)])
    assert drive(engine, run_id, Script(a=ignores_the_signal)) == RunEnded(RunStatus.FAILED)
    deaf.set()
    row = node_row(engine, run_id, "a")
    assert (row.status, row.artifact_json) == ("FAILED", None)


def test_a_stop_ends_what_runs_and_skips_what_is_below(engine: Engine) -> None:
    run_id = start_run(engine, [node("done"), node("a", "done"), node("b", "a"), node("c")])
    script = Script(a=waits_until_stopped, c=waits_until_stopped)
    with Driving(engine, run_id, script) as driving:
        assert script.begun["a"].wait(PATIENCE_S)
        assert script.begun["c"].wait(PATIENCE_S)
        operate(engine, run_id, run={"status": RunStatus.STOPPING, "stop_requested_by": "key:7"})
        assert driving.wait() == RunEnded(RunStatus.STOPPED)
    assert statuses(engine, run_id) == {"done": "SUCCESS", "a": "STOPPED", "b": "SKIPPED", "c": "STOPPED"}
    assert node_row(engine, run_id, "a").last_error == "the run was stopped by key:7"
    assert run_row(engine, run_id).status == "STOPPED"


def test_no_node_begins_after_a_stop(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])

    def stops_its_run(request: AttemptRequest) -> Outcome:
        operate(engine, run_id, run={"status": RunStatus.STOPPING})
        return NodeResult()

    script = Script(a=stops_its_run)
    assert drive(engine, run_id, script) == RunEnded(RunStatus.STOPPED)
    assert script.calls == [("a", 1)]
    assert statuses(engine, run_id) == {"a": "SUCCESS", "b": "STOPPED"}


def test_a_retry_during_the_run_brings_back_what_was_skipped(engine: Engine) -> None:
    gate = Gate()
    run_id = start_run(engine, [node("a"), node("b", "a"), node("other")])
    script = Script(a=lambda request: NodeResult() if request.attempt == 2 else fails()(request), other=gate)
    with Driving(engine, run_id, script) as driving:
        until("b is skipped", lambda: statuses(engine, run_id)["b"] == "SKIPPED")
        operate(engine, run_id, "a", status=NodeStatus.RETRYING, attempt=2, tries=0, next_try_at=None)
        until("b has succeeded", lambda: statuses(engine, run_id)["b"] == "SUCCESS")
        gate.opened.set()
        assert driving.wait() == RunEnded(RunStatus.SUCCESS)
    assert ("a", 2) in script.calls


def test_a_retry_after_the_end_is_driven_by_a_further_drive(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    assert drive(engine, run_id, Script(a=fails())) == RunEnded(RunStatus.FAILED)
    close_drive(engine, run_id)
    running = {"status": RunStatus.RUNNING}
    operate(engine, run_id, "a", running, status=NodeStatus.RETRYING, attempt=2, tries=0, next_try_at=None)
    assert next_drive(engine, run_id) == 2
    script = Script()
    assert drive(engine, run_id, script) == RunEnded(RunStatus.SUCCESS)
    assert script.calls == [("a", 2), ("b", 1)]


def test_the_result_of_a_node_that_was_completed_meanwhile_is_discarded(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    seen: list[str | None] = []

    def hears_of_it(request: AttemptRequest) -> Outcome:
        request.stop.wait(PATIENCE_S)
        seen.append(request.stop.reason)
        return NodeResult("mine")

    script = Script(a=hears_of_it)
    operation = {"action": "complete", "actor": "key:1", "reason": "done by hand"}
    with Driving(engine, run_id, script) as driving:
        assert script.begun["a"].wait(PATIENCE_S)
        operate(engine, run_id, "a", status=NodeStatus.SUCCESS, artifact_json="theirs", operations=[operation])
        assert driving.wait() == RunEnded(RunStatus.SUCCESS)
    assert node_row(engine, run_id, "a").artifact_json == "theirs"
    assert seen == ["the node was completed by hand"]
    ended = [item for item in driving.happenings if isinstance(item, NodeEnded)]
    assert [(item.node_id, item.by_hand) for item in ended] == [("a", operation), ("b", None)]


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param({"status": NodeStatus.SUCCESS, "artifact_json": "theirs"}, id="completed"),
        pytest.param({"status": NodeStatus.RUNNING, "attempt": 7, "artifact_json": "theirs"}, id="another attempt"),
        pytest.param({"status": NodeStatus.RUNNING, "drive_no": 7, "artifact_json": "theirs"}, id="another drive"),
    ],
)
def test_a_result_is_written_only_if_the_node_is_still_as_the_attempt_left_it(
    engine: Engine, theirs: dict[str, Any]
) -> None:
    """The operation is committed after the drive looked at the run and before it writes: only the update can tell."""
    run_id = start_run(engine, [node("a")])

    def is_overtaken(request: AttemptRequest) -> Outcome:
        with engine.begin() as connection:
            connection.execute(update(job_run_node).where(job_run_node.c.run_id == run_id).values(theirs))
        return NodeResult("mine")

    script = Script(a=is_overtaken)
    with Driving(engine, run_id, script) as driving:
        until("the attempt has ended", lambda: script.ended == ["a"])
        operate(engine, run_id, "a", status=NodeStatus.SUCCESS)
        assert driving.wait() == RunEnded(RunStatus.SUCCESS)
    assert node_row(engine, run_id, "a").artifact_json == "theirs"


def test_what_a_dead_process_left_running_is_tried_again_and_no_success_is_repeated(engine: Engine) -> None:
    run_id = start_run(engine, DIAMOND)
    script = Script(b=waits_until_stopped, c=waits_until_stopped)
    dead = Driving(engine, run_id, script)
    with dead:
        assert script.begun["b"].wait(PATIENCE_S)
        assert script.begun["c"].wait(PATIENCE_S)
        close_drive(engine, run_id)
        assert next_drive(engine, run_id) == 2
        assert dead.wait() == Superseded()
    after = Script()
    assert drive(engine, run_id, after) == RunEnded(RunStatus.SUCCESS)
    assert sorted(after.calls) == [("b", 2), ("c", 2), ("d", 1)]
    assert node_row(engine, run_id, "b").deaths == 1


def test_a_node_during_which_the_process_always_dies_fails_at_last(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    for _ in range(3):
        script = Script(a=waits_until_stopped)
        with Driving(engine, run_id, script):
            assert script.begun["a"].wait(PATIENCE_S)
            close_drive(engine, run_id)
            next_drive(engine, run_id)
    assert drive(engine, run_id, Script()) == RunEnded(RunStatus.FAILED)
    assert statuses(engine, run_id) == {"a": "FAILED", "b": "SKIPPED"}
    assert node_row(engine, run_id, "a").last_error == "the process died 3 times while this node ran"


def test_stopping_the_platform_leaves_the_run_to_the_next_drive(engine: Engine) -> None:
    run_id = start_run(engine, [node("a", retry={"maxAttempts": 2, "backoffMillis": 1})])
    script = Script(a=waits_until_stopped)
    with Driving(engine, run_id, script) as driving:
        assert script.begun["a"].wait(PATIENCE_S)
        driving.interrupt.set()
        assert driving.wait() == Interrupted()
    row = node_row(engine, run_id, "a")
    assert (row.status, row.attempt, row.tries, row.deaths) == ("RETRYING", 2, 0, 0)
    assert run_row(engine, run_id).status == "RUNNING"
    close_drive(engine, run_id)
    next_drive(engine, run_id)
    assert drive(engine, run_id, Script()) == RunEnded(RunStatus.SUCCESS)


def test_terminating_the_process_in_the_ui_stops_the_run(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    script = Script(a=waits_until_stopped)
    with Driving(engine, run_id, script) as driving:
        assert script.begun["a"].wait(PATIENCE_S)
        with engine.connect() as connection:
            dagster_run_id = connection.execute(select(work.c.run_id)).scalar_one()
        rows.request_cancel(engine, dagster_run_id)
        driving.interrupt.set()
        assert driving.wait() == RunEnded(RunStatus.STOPPED)
    assert statuses(engine, run_id) == {"a": "STOPPED", "b": "SKIPPED"}
    assert run_row(engine, run_id).stop_requested_by == "operator"


def waits_for_run(sub_run: str, look_again_s: float = 60) -> Any:
    def play(request: AttemptRequest) -> Outcome:
        return Waiting({"kind": "run", "runId": sub_run}, datetime.now(UTC) + timedelta(seconds=look_again_s))

    return play


def test_a_run_whose_nodes_wait_gives_its_slot_back_and_goes_on_when_woken(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    sub_run = start_run(engine, [node("x")], parent_run_id=run_id, parent_node_id="a", depth=1)
    end = drive(engine, run_id, Script(a=waits_for_run(sub_run)))
    assert isinstance(end, Parked)
    assert end.waits_for == ({"kind": "run", "runId": sub_run},)
    with engine.connect() as connection:
        row = connection.execute(select(work).where(work.c.not_before.is_not(None))).one()
    assert (row.status, row.lease_owner, row.pid, row.not_before) == ("QUEUED", None, None, end.until)
    assert drive(engine, sub_run, Script()) == RunEnded(RunStatus.SUCCESS)
    with engine.connect() as connection:
        assert connection.execute(select(work.c.not_before).where(work.c.id == row.id)).scalar_one() is None
    script = Script()
    next_drive(engine, run_id)
    assert drive(engine, run_id, script) == RunEnded(RunStatus.SUCCESS)
    assert script.calls == [("a", 1), ("b", 1)]


def test_the_end_of_a_sub_run_is_not_missed_when_it_comes_before_its_node_waits(engine: Engine) -> None:
    run_id = start_run(engine, [node("a")])
    sub_run = start_run(engine, [node("x")], parent_run_id=run_id, parent_node_id="a", depth=1)
    calls: list[int] = []

    def waits_for_what_has_ended(request: AttemptRequest) -> Outcome:
        calls.append(request.attempt)
        if len(calls) > 1:
            return NodeResult()
        assert drive(engine, sub_run, Script()) == RunEnded(RunStatus.SUCCESS)
        return waits_for_run(sub_run)(request)

    assert drive(engine, run_id, Script(a=waits_for_what_has_ended)) == RunEnded(RunStatus.SUCCESS)
    assert calls == [1, 1]


def test_a_waiting_node_holds_no_slot_but_the_drive_stays_while_others_run(engine: Engine) -> None:
    gate = Gate()
    run_id = start_run(engine, [node("a"), node("b")])
    script = Script(a=waits_for_run(start_run(engine, [node("x")])), b=gate)
    with Driving(engine, run_id, script, parallel=1) as driving:
        assert script.begun["b"].wait(PATIENCE_S)
        gate.opened.set()
        assert isinstance(driving.wait(), Parked)


def test_a_waiting_node_that_takes_too_long_fails_and_stops_its_sub_run(engine: Engine) -> None:
    run_id = start_run(engine, [node("a", timeoutSeconds=0.2)])
    sub_run = start_run(engine, [node("x")], parent_run_id=run_id, parent_node_id="a", depth=1)
    script = Script(a=waits_for_run(sub_run))
    assert drive(engine, run_id, script, may_park=False) == RunEnded(RunStatus.FAILED)
    assert node_row(engine, run_id, "a").last_error == "timed out after 0.2 s"
    assert run_row(engine, sub_run).status == "STOPPING"
    assert drive(engine, sub_run, Script()) == RunEnded(RunStatus.STOPPED)


def test_a_stopped_run_stops_its_sub_runs(engine: Engine) -> None:
    run_id = start_run(engine, [node("a")])
    sub_run = start_run(engine, [node("x")], parent_run_id=run_id, parent_node_id="a", depth=1)
    assert isinstance(drive(engine, run_id, Script(a=waits_for_run(sub_run))), Parked)
    assert operations.stop_run(engine, run_id, actor="key:1") is RunStatus.STOPPING
    assert (run_row(engine, run_id).status, run_row(engine, sub_run).status) == ("STOPPED", "STOPPING")
    next_drive(engine, run_id)
    assert drive(engine, run_id, Script()) == Superseded()


def test_a_long_backoff_parks_the_run_and_a_short_one_does_not(engine: Engine) -> None:
    long = start_run(engine, [node("a", retry={"maxAttempts": 2, "backoffMillis": 3_600_000})])
    assert isinstance(drive(engine, long, Script(a=fails())), Parked)
    short = start_run(engine, [node("a", retry={"maxAttempts": 2, "backoffMillis": 100})])
    assert drive(engine, short, Script(a=fails())) == RunEnded(RunStatus.FAILED)


def test_a_run_that_somebody_asked_to_end_is_not_parked(engine: Engine) -> None:
    sub_run = start_run(engine, [node("x")])
    run_id = start_run(engine, [node("a")])

    def asks_to_end(request: AttemptRequest) -> Outcome:
        transact(
            engine, lambda connection: connection.execute(update(work).values(cancel_requested_at=datetime.now(UTC)))
        )
        return waits_for_run(sub_run)(request)

    with Driving(engine, run_id, Script(a=asks_to_end)) as driving:
        until("it waits", lambda: node_row(engine, run_id, "a").waits_for)
        with engine.connect() as connection:
            assert set(connection.execute(select(work.c.status)).scalars()) == {"RUNNING"}
        driving.interrupt.set()
        assert driving.wait() == Interrupted()


def test_other_waits_are_woken_by_their_key(engine: Engine) -> None:
    run_id = start_run(engine, [node("a")])

    def waits_for_table(request: AttemptRequest) -> Outcome:
        return Waiting({"kind": "arrival", "key": "T 20260101"}, datetime.now(UTC) + timedelta(hours=1))

    assert isinstance(drive(engine, run_id, Script(a=waits_for_table)), Parked)
    assert transact(engine, lambda connection: waking.wake_waiting(connection, "arrival", "T 20260102")) == 0
    assert transact(engine, lambda connection: waking.wake_waiting(connection, "arrival", "T 20260101")) == 1
    next_drive(engine, run_id)
    assert drive(engine, run_id, Script()) == RunEnded(RunStatus.SUCCESS)


def test_what_a_node_logs_is_reported_between_its_start_and_its_end(engine: Engine) -> None:
    def says_hello(request: AttemptRequest) -> Outcome:
        request.log("hello")
        return NodeResult()

    run_id = start_run(engine, [node("a")])
    with Driving(engine, run_id, Script(a=says_hello)) as driving:
        driving.wait()
    kinds = [type(item) for item in driving.happenings]
    assert kinds == [AttemptStarted, LineLogged, NodeEnded, RunEnded]


def test_a_run_that_is_over_is_not_driven_again(engine: Engine) -> None:
    run_id = start_run(engine, [node("a")])
    assert drive(engine, run_id, Script()) == RunEnded(RunStatus.SUCCESS)
    script = Script()
    assert drive(engine, run_id, script) == Superseded()
    assert script.calls == []


@st.composite
def dags(draw: st.DrawFn) -> list[dict[str, Any]]:
    size = draw(st.integers(1, 12))
    return [
        node(f"n{number}", *draw(st.sets(st.sampled_from([f"n{other}" for other in range(number)]), max_size=3)))
        if number
        else node("n0")
        for number in range(size)
    ]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dag=dags(), parallel=st.integers(1, 8))
def test_any_dag_runs_each_node_once_in_an_order_that_respects_every_edge(
    engine: Engine, dag: list[dict[str, Any]], parallel: int
) -> None:
    run_id = start_run(engine, dag)
    script = Script()
    assert drive(engine, run_id, script, parallel=parallel) == RunEnded(RunStatus.SUCCESS)
    assert sorted(script.calls) == sorted((item["id"], 1) for item in dag)
    begun = [call[0] for call in script.calls]
    for above, below in edges(dag):
        assert script.ended.index(above) < script.ended.index(below)
        assert begun.index(above) < begun.index(below)

"""Random DAGs with failures, stops, retries, completes, deaths and restarts, against a model of the state machine."""

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine

from platform_defs.chains.errors import Conflict
from platform_defs.chains.nodes.port import AttemptRequest, NodeFailed, NodeResult, NodeStopped, Outcome
from platform_defs.chains.runs import driver, operations
from platform_defs.chains.runs.drives import begin_drive, lock_run, open_drive
from platform_defs.chains.states import RunStatus
from platform_defs.store.engine import read, transact
from tests.chains.making import node_rows, run_row
from tests.chains.runs.driving import Driving, claim, close_drive, node, start_run
from tests.chains.runs.model import Model, ModelNode
from tests.conftest import needs
from tests.waiting import PATIENCE_S, until

ACTOR = "tester"
LATE = {"late": True}


class Killed(BaseException):
    """Ends a drive in the middle of whatever it does, as kill -9 would."""


class Stage:
    """Attempts that wait for the test to end them. One that is told to end gives back a result, which is late."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._verdicts: dict[tuple[str, int], str] = {}
        self._decided = threading.Condition(self._lock)
        self.begun: list[tuple[str, int]] = []

    def decide(self, attempt: tuple[str, int], verdict: str) -> None:
        with self._decided:
            self._verdicts[attempt] = verdict
            self._decided.notify_all()

    def perform(self, request: AttemptRequest) -> Outcome:
        me = (request.node.id, request.attempt)
        with request.stop.interrupting(self._wake), self._decided:
            self.begun.append(me)
            self._decided.wait_for(lambda: me in self._verdicts or request.stop.reason is not None, PATIENCE_S)
            verdict = self._verdicts.get(me)
        if verdict == "fail":
            raise NodeFailed("no luck")
        if verdict == "succeed":
            return NodeResult(artifact={"of": list(me)})
        if "stopped by" in (request.stop.reason or "") or "platform" in (request.stop.reason or ""):
            raise NodeStopped()
        return NodeResult(artifact=LATE)

    def _wake(self) -> None:
        with self._decided:
            self._decided.notify_all()


class World:
    """A run with its real driver, and the model of it."""

    def __init__(self, engine: Engine, dag: list[dict[str, Any]]) -> None:
        self.engine = engine
        self.stage = Stage()
        self.run_id = start_run(engine, dag)
        self.model = Model({one["id"]: ModelNode(one["dependsOn"], one["retry"]["maxAttempts"]) for one in dag})
        self.names = [one["id"] for one in dag]
        self.driven = 1
        self._begin_drive()
        self.check()

    def _begin_drive(self) -> None:
        self.killed = threading.Event()
        self.driving = Driving(self.engine, self.run_id, self.stage.perform, drive_no=self.driven)
        original = self.driving.interrupt.is_set

        def interrupted() -> bool:
            if self.killed.is_set():
                raise Killed
            return original()

        self.driving._driver._interrupted = interrupted
        self.driving.__enter__()

    def act(self, kind: str, pick: int) -> None:
        name, running = self.names[pick % len(self.names)], self.model.running()
        if kind in ("succeed", "fail"):
            if not running:
                return
            name = running[pick % len(running)]
            getattr(self.model, kind)(name)
            self.stage.decide((name, node_rows(self.engine, self.run_id)[name].attempt), kind)
        elif kind == "retry":
            self._operate(
                self.model.retry(name),
                lambda: operations.retry_node(self.engine, self.run_id, name, actor=ACTOR, reason="model"),
            )
        elif kind == "complete":
            self._operate(
                self.model.complete(name),
                lambda: operations.complete_node(self.engine, self.run_id, name, actor=ACTOR, artifact={"by": "hand"}),
            )
        elif kind == "stop":
            self._operate(self.model.stop(), lambda: operations.stop_run(self.engine, self.run_id, actor=ACTOR))
        elif running:
            getattr(self.model, kind)()
            (self.killed if kind == "die" else self.driving.interrupt).set()
            self.driving._thread.join(PATIENCE_S)
            close_drive(self.engine, self.run_id)
            transact(self.engine, self._recover)
        self.model.follow()
        self.check()

    def _operate(self, allowed: bool, operation: Any) -> None:
        if allowed:
            operation()
        else:
            with pytest.raises(Conflict):
                operation()

    def _recover(self, connection: Connection) -> None:
        run = lock_run(connection, self.run_id)
        assert run is not None
        if open_drive(connection, self.run_id) is None:
            begin_drive(connection, run, "recovery")

    def check(self) -> None:
        """Waits until tables and attempts are as the model says; a new drive is executed as the runner would."""
        self.model.follow()
        expected = {name: (one.status, one.attempt) for name, one in self.model.nodes.items()}

        def look() -> bool:
            self._drive_what_is_queued()
            rows = node_rows(self.engine, self.run_id)
            return (
                {name: (row.status, row.attempt) for name, row in rows.items()} == expected
                and run_row(self.engine, self.run_id).status == self.model.run
                and set(self.stage.begun) == self.model.begun
            )

        try:
            until("the model's state", look)
        except AssertionError:
            rows = {name: (row.status, row.attempt) for name, row in node_rows(self.engine, self.run_id).items()}
            run = run_row(self.engine, self.run_id).status
            raise AssertionError(
                f"expected {self.model.run} {expected} begun {self.model.begun};"
                f" got {run} {rows} begun {self.stage.begun}, drive {self.driving.error}"
            ) from None
        # no attempt is ever executed twice, and a late result is never kept
        assert len(self.stage.begun) == len(set(self.stage.begun))
        assert all(row.artifact_json != LATE for row in node_rows(self.engine, self.run_id).values())

    def _drive_what_is_queued(self) -> None:
        def take(connection: Connection) -> int | None:
            drive = open_drive(connection, self.run_id)
            if drive is None or drive.drive_no == self.driven:
                return None
            claim(connection, drive)
            return drive.drive_no

        if read(self.engine, lambda connection: open_drive(connection, self.run_id)) is None:
            return
        taken = transact(self.engine, take)
        if taken is not None:
            self.driven = taken
            self._begin_drive()

    def finish(self) -> None:
        """Whatever state the run is in, an operator can bring it to SUCCESS."""
        for _ in range(100):
            if self.model.run == "SUCCESS":
                break
            for name, one in list(self.model.nodes.items()):
                if one.status in ("FAILED", "STOPPED", "RUNNING"):
                    self.act("complete", self.names.index(name))
        assert run_row(self.engine, self.run_id).status == RunStatus.SUCCESS
        self.driving._thread.join(PATIENCE_S)


@st.composite
def dags(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        above = draw(st.sets(st.sampled_from([one["id"] for one in made]), max_size=3)) if made else set()
        retry = {"maxAttempts": draw(st.integers(1, 2)), "backoffMillis": 0}
        made.append(node(f"n{number}", *sorted(above), retry=retry))
    return made


ACTIONS = ["succeed", "succeed", "fail", "fail", "retry", "complete", "stop", "die", "leave"]


EVENTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), min_size=3, max_size=14)
# A failing sequence waits for seconds at each try: shrinking one would take many minutes.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
SHARED = [HealthCheck.function_scoped_fixture]


def play(engine: Engine, dag: list[dict[str, Any]], actions: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "POLL_S", 0.01)
        world = World(engine, dag)
        for kind, pick in actions:
            world.act(kind, pick)
        world.finish()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@settings(max_examples=25, phases=PHASES, suppress_health_check=SHARED)
@given(dag=dags(), actions=EVENTS)
def test_any_sequence_of_events_ends_as_the_model_says(
    engine: Engine, dag: list[dict[str, Any]], actions: list[tuple[str, int]]
) -> None:
    play(engine, dag, actions)


@needs("mysql", "time")
@pytest.mark.parametrize("engine", ["mysql"], indirect=True)
@settings(max_examples=8, phases=PHASES, suppress_health_check=SHARED)
@given(dag=dags(), actions=EVENTS)
def test_any_sequence_of_events_ends_as_the_model_says_on_mysql(
    engine: Engine, dag: list[dict[str, Any]], actions: list[tuple[str, int]]
) -> None:
    play(engine, dag, actions)

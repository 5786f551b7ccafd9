"""The platform's own database goes away while a node is under way: the attempt waits for it, and can be stopped."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.chains.nodes import patience
from platform_defs.chains.nodes.port import NodeContext, NodeResult, NodeStopped, Outcome
from platform_defs.store.engine import open_engine
from tests.chains.nodes.attempts import Bench, open_bench
from tests.chains.nodes.test_perform import Call, CallCfg
from tests.e2e.cut import Cable, cable
from tests.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.needs("mysql"),
    pytest.mark.parametrize("engine", [pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True),
]


@pytest.fixture
def line(engine: Engine) -> Iterator[tuple[Cable, Engine]]:
    """The same database behind a cable that can be cut."""
    assert engine.url.host is not None
    with cable(engine.url.host, engine.url.port or 3306) as cut_off:
        through = open_engine(engine.url.set(host="127.0.0.1", port=cut_off.port))
        yield cut_off, through
        through.dispose()


class Attempt(threading.Thread):
    def __init__(self, bench: Bench, count: int = 1) -> None:
        super().__init__()
        self.bench, self.count = bench, count
        self.result: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.bench.perform("call", {"count": self.count})
        except Exception as error:
            self.result = error


def test_an_attempt_begins_and_saves_its_checkpoint_when_the_database_is_back(
    line: tuple[Cable, Engine], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off, through = line
    monkeypatch.setattr(patience, "PAUSE_S", 0.05)

    def mend_after_the_second_wait() -> None:
        until("the second wait", lambda: caplog.text.count("a node waits for the database") == 2)
        cut_off.mend()

    def work(context: NodeContext, cfg: CallCfg) -> Outcome:
        cut_off.cut()
        threading.Thread(target=mend_after_the_second_wait).start()
        context.save_checkpoint({"page": 1})
        return NodeResult("done")

    bench = open_bench(through, None, Call(work))
    cut_off.cut()
    attempt = Attempt(bench)
    until("the attempt to wait", lambda: "a node waits for the database" in caplog.text)
    assert attempt.is_alive()
    cut_off.mend()
    attempt.join(PATIENCE_S)
    assert isinstance(attempt.result, NodeResult), attempt.result


def test_an_attempt_that_waits_for_the_database_can_be_stopped(
    line: tuple[Cable, Engine], caplog: pytest.LogCaptureFixture
) -> None:
    cut_off, through = line
    bench = open_bench(through, None, Call())
    cut_off.cut()
    attempt = Attempt(bench)
    until("the attempt to wait", lambda: "a node waits for the database" in caplog.text)
    bench.stop.set("its time is over")
    attempt.join(PATIENCE_S)
    assert isinstance(attempt.result, NodeStopped)
    assert str(attempt.result) == "its time is over"
    cut_off.mend()

"""Attempts that execute in threads of this process: started, told to end, and collected when they have ended."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from platform_defs.chains.dag import Node
from platform_defs.chains.nodes.port import AttemptRequest, NodeFailed, NodeStopped, Outcome, Perform, StopSignal
from platform_defs.chains.runs.happenings import LineLogged
from platform_defs.errors import one_line

# An attempt that was told to end gets this long. Then nobody waits for it any longer, and its result is discarded.
GRACE_S = 2.0


@dataclass(frozen=True)
class Failure:
    """How an attempt failed. `stopped`: because it was told to end, which is no failure of its own."""

    error: str
    may_retry: bool = True
    stopped: bool = False
    timed_out: bool = False


@dataclass
class Attempt:
    """One attempt in a thread. `deadline` is the end of the time that the node may take."""

    node: Node
    number: int
    deadline: datetime | None
    stop: StopSignal = field(default_factory=StopSignal)
    # When nobody waits for the attempt any longer, by the monotonic clock; set once it was told to end.
    abandon_at: float | None = None
    is_timed_out: bool = False

    def end(self, reason: str, grace_s: float = GRACE_S) -> None:
        if self.abandon_at is None:
            self.abandon_at = time.monotonic() + grace_s
        self.stop.set(reason)


@dataclass(frozen=True)
class Finished:
    attempt: Attempt
    result: Outcome | Failure


class Attempts:
    """Threads are daemons: an attempt that does not listen to its stop signal keeps no process alive."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._running: dict[str, Attempt] = {}
        self._queue: queue.SimpleQueue[Finished | LineLogged] = queue.SimpleQueue()
        self._held: Finished | LineLogged | None = None

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._running.values()))

    def get(self, node_id: str) -> Attempt | None:
        return self._running.get(node_id)

    def start(self, attempt: Attempt, request: Callable[[StopSignal, Callable[[str], None]], AttemptRequest]) -> None:
        node_id = attempt.node.id
        self._running[node_id] = attempt
        asked = request(attempt.stop, lambda text: self._queue.put(LineLogged(node_id, text)))
        thread = threading.Thread(target=self._execute, args=(attempt, asked), name=f"node {node_id}", daemon=True)
        thread.start()

    def forget(self, node_id: str) -> None:
        """Its result, should it come, is discarded."""
        self._running.pop(node_id, None)

    def wait(self, timeout_s: float) -> None:
        """Returns when an attempt has ended or logged a line, or after the time."""
        if self._held is None:
            with suppress(queue.Empty):
                self._held = self._queue.get(timeout=max(0.0, timeout_s))

    def collect(self, now: datetime) -> tuple[list[LineLogged], list[Finished]]:
        """What was logged, and the attempts that have ended or that nobody waits for any longer, each once."""
        lines: list[LineLogged] = []
        finished: list[Finished] = []
        for item in self._drain():
            if isinstance(item, LineLogged):
                lines.append(item)
            elif self._running.get(item.attempt.node.id) is item.attempt:
                finished.append(item)
        ended = {item.attempt.node.id for item in finished}
        for attempt in self:
            if attempt.node.id in ended:
                continue
            if attempt.deadline is not None and now >= attempt.deadline:
                attempt.is_timed_out = True
                attempt.end(timeout_text(attempt.node))
            if attempt.abandon_at is not None and time.monotonic() >= attempt.abandon_at:
                finished.append(Finished(attempt, _failure_of(attempt, str(attempt.stop.reason))))
        for item in finished:
            self.forget(item.attempt.node.id)
        return lines, finished

    def _drain(self) -> Iterator[Finished | LineLogged]:
        held, self._held = self._held, None
        if held is not None:
            yield held
        with suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def _execute(self, attempt: Attempt, request: AttemptRequest) -> None:
        result: Outcome | Failure
        try:
            result = self._perform(request)
        except NodeStopped as error:
            result = _failure_of(attempt, str(error) or str(attempt.stop.reason))
        except NodeFailed as error:
            result = _failure_of(attempt, str(error), may_retry=error.may_retry)
        except BaseException as error:  # Whatever a plug-in raises fails its attempt alone, also SystemExit.
            result = _failure_of(attempt, f"{type(error).__name__}: {one_line(error)}")
        self._queue.put(Finished(attempt, result))


def _failure_of(attempt: Attempt, error: str, *, may_retry: bool = True) -> Failure:
    """An attempt that fails after it was told to end was most likely interrupted: the reason to end is its error."""
    if attempt.is_timed_out:
        return timeout_of(attempt.node)
    if attempt.stop.reason is not None:
        return Failure(attempt.stop.reason, stopped=True)
    return Failure(error, may_retry=may_retry)


def timeout_text(node: Node) -> str:
    return f"timed out after {node.timeout_s:g} s"


def timeout_of(node: Node) -> Failure:
    return Failure(timeout_text(node), timed_out=True)

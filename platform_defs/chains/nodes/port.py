"""The port between a chain and its node types: what an executor is given, and what it gives back."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel
from sqlalchemy import Connection

from platform_defs.chains.dag import Node


class StopSignal:
    """Tells an attempt that it must end now: its run is stopped, its time is over, or an operator completed its node.

    An executor that blocks registers how its blocking call is interrupted; others ask `reason` now and then, or wait
    with `wait`. The signal comes from another thread.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._interrupts: list[Callable[[], None]] = []
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the attempt must end; None while it may go on."""
        return self._reason

    def wait(self, timeout_s: float) -> bool:
        """Waits for at most this long; True if the attempt must end."""
        return self._event.wait(timeout_s)

    def set(self, reason: str) -> None:
        """Only the first reason counts."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            interrupts = list(self._interrupts)
        self._event.set()
        for interrupt in interrupts:
            interrupt()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While the block runs, the signal calls `interrupt`, from another thread; at once if it was given before."""
        with self._lock:
            self._interrupts.append(interrupt)
            was_set = self._reason is not None
        if was_set:
            interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


@dataclass(frozen=True)
class NodeContext:
    """What one attempt of a node is given. `log` writes a line into the log of the node's step."""

    run_id: str
    node_id: str
    attempt: int
    params: Mapping[str, Any]
    # What an earlier attempt of this node saved; None if there is nothing.
    checkpoint: Any
    stop: StopSignal
    log: Callable[[str], None]
    save_checkpoint: Callable[[Any], None]
    # how deep the run is nested below a run that no other run started
    depth: int = 0
    # `timeoutSeconds` of the node; the StopSignal comes when they are over
    timeout_s: float | None = None
    # The secret that a reference in the cfg stands for; what it returns is masked in logs, errors and artifacts.
    reveal: Callable[[str], str] = lambda text: text
    # Raises NodeStopped in the caller's transaction if the node was completed or taken over: nothing may be written.
    require_current: Callable[[Connection], None] = lambda connection: None


@dataclass(frozen=True)
class NodeResult:
    """A successful end: the artifact that nodes below may refer to, and a checkpoint for a later retry."""

    artifact: Any = None
    checkpoint: Any = None


@dataclass(frozen=True)
class Waiting:
    """The node waits for something outside and needs no process meanwhile.

    `waits_for` says what for, e.g. {"kind": "run", "runId": "..."} or {"kind": "arrival", "table": "T", "opTime": "D"}:
    when that has happened, or at `look_again_at`, the executor is called again, in the same attempt, with the
    checkpoint.
    """

    waits_for: Mapping[str, Any]
    look_again_at: datetime
    checkpoint: Any = None


Outcome: TypeAlias = NodeResult | Waiting


class NodeFailed(Exception):
    """The attempt failed; the message becomes last_error. Any other exception of an executor fails it as well."""

    def __init__(self, message: str, *, may_retry: bool = True) -> None:
        super().__init__(message)
        self.may_retry = may_retry


class NodeStopped(Exception):
    """The attempt ended because its StopSignal was set."""


@dataclass(frozen=True)
class AttemptRequest:
    """Which attempt of which node is to be executed, by which drive. `log` writes into the log of the node's step.

    `execution.perform` turns it into the call of the node's executor.
    """

    run_id: str
    node: Node
    attempt: int
    drive_no: int
    params: Mapping[str, Any]
    depth: int
    stop: StopSignal
    log: Callable[[str], None]


# Executes one attempt in the calling thread. NodeFailed, NodeStopped and any other exception are its failures.
Perform: TypeAlias = Callable[[AttemptRequest], Outcome]


class NodeExecutor(Protocol):
    """A node type. `name` is what a node says as its type, `cfg_model` describes its cfg."""

    @property
    def name(self) -> str: ...

    @property
    def cfg_model(self) -> type[BaseModel]: ...

    def execute(self, context: NodeContext, cfg: Any) -> Outcome:
        """`cfg` is an instance of cfg_model, with every expression evaluated and every secret still a reference."""
        ...


@runtime_checkable
class ChecksCfg(Protocol):
    """A node type that can say more about a cfg than its schema, when a chain is saved and before a node runs."""

    def problems(self, cfg: Any) -> Iterable[str]:
        """One line for each problem; `cfg` is an instance of cfg_model in which nothing is left to be evaluated."""
        ...


@dataclass(frozen=True)
class SecretNames:
    """The environment variables that chains may refer to, as patterns; those of the platform itself never."""

    patterns: tuple[str, ...] = ("CHAIN_*",)

    def allow(self, name: str) -> bool:
        return not name.startswith("PLATFORM_") and any(fnmatchcase(name, pattern) for pattern in self.patterns)


@dataclass(frozen=True)
class NodeTypes:
    """The node types of this platform by name: built in, handed in from above the systems, and plug-ins."""

    by_name: Mapping[str, NodeExecutor] = field(default_factory=dict)
    secret_names: SecretNames = field(default_factory=SecretNames)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> NodeExecutor:
        return self.by_name[name]

    def close(self) -> None:
        """Closes connections that executors have kept open from one attempt to the next."""
        for executor in self.by_name.values():
            if callable(close := getattr(executor, "close", None)):
                close()

"""The node type `python`: calls a function that a package brings as an entry point. No code comes out of a chain."""

import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TextIO

from pydantic import Field

from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, Outcome, Waiting

# A package names functions here: def work(context: NodeContext, arguments: dict) -> artifact, NodeResult or Waiting.
FUNCTIONS = "platform_defs.chain_functions"

ChainFunction = Callable[[NodeContext, Mapping[str, Any]], Any]


class PythonCfg(NodeCfg):
    """Calls a function of an installed package; what it returns is the artifact, what it prints is in the log."""

    function: str = Field(min_length=1, description=f"The name of an entry point of the group {FUNCTIONS}.")
    arguments: dict[str, Any] = Field({}, description="Given to the function.")


class PythonExecutor:
    name = "python"
    cfg_model = PythonCfg

    def problems(self, cfg: PythonCfg) -> Iterator[str]:
        if cfg.function not in chain_functions():
            known = ", ".join(sorted(chain_functions())) or "none is installed"
            yield f"cfg.function: expected a function of {FUNCTIONS} ({known}), got {cfg.function!r}"

    def execute(self, context: NodeContext, cfg: PythonCfg) -> Outcome:
        function = load_function(cfg.function)
        with printing_into(context.log):
            returned = function(context, cfg.arguments)
        return returned if isinstance(returned, NodeResult | Waiting) else NodeResult(artifact=returned)


def chain_functions() -> frozenset[str]:
    """The names of the functions that are installed."""
    return frozenset(entry_points(group=FUNCTIONS).names)


@cache
def load_function(name: str) -> ChainFunction:
    for found in entry_points(group=FUNCTIONS):
        if found.name == name:
            loaded: ChainFunction = found.load()
            return loaded
    raise NodeFailed(f"no function is named {name!r}: install the package that brings it", may_retry=False)


_current = threading.local()
_lock = threading.Lock()


class _Divided(io.TextIOBase):
    """A standard output that threads of nodes write into their own log, and all others where they always did."""

    def __init__(self, usual: TextIO) -> None:
        self.usual = usual

    def write(self, text: str) -> int:
        lines: _Lines | None = getattr(_current, "lines", None)
        return self.usual.write(text) if lines is None else lines.write(text)

    def flush(self) -> None:
        self.usual.flush()

    def fileno(self) -> int:
        return self.usual.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.usual.encoding


class _Lines:
    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._log(line)
        return len(text)

    def end(self) -> None:
        if self._begun:
            self._log(self._begun)


@contextmanager
def printing_into(log: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, what this thread prints goes to the log, line by line."""
    with _lock:
        if not isinstance(sys.stdout, _Divided):
            sys.stdout = _Divided(sys.stdout)
    lines = _current.lines = _Lines(log)
    try:
        yield
    finally:
        _current.lines = None
        lines.end()

"""The node type `python`: calls a function that a package brings as an entry point. No code comes out of a chain."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

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

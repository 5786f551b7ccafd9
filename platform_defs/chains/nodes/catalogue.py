"""The node types of the platform: built in, plug-ins, and those handed in from above the systems."""

import logging
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, ValidationError

from platform_defs.chains.dag import Dag
from platform_defs.chains.nodes.cfg import SpecialFields, describe_errors
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import ChecksCfg, NodeExecutor, NodeFailed, NodeTypes, SecretNames
from platform_defs.chains.nodes.rendering import CfgTemplate, compile_cfg, reference_problems
from platform_defs.chains.nodes.secrets import Path, path_text, secret_problems
from platform_defs.chains.nodes.types.chain_node import ChainExecutor
from platform_defs.chains.nodes.types.http_node import HttpExecutor
from platform_defs.chains.nodes.types.print_node import PrintExecutor
from platform_defs.chains.nodes.types.python_node import PythonExecutor
from platform_defs.chains.nodes.types.shell_node import ShellExecutor
from platform_defs.chains.nodes.types.sql_node import SqlExecutor

# Packages that bring node types name them here: an entry point leads to a class without arguments, or to an instance.
PLUG_INS = "platform_defs.node_executors"
_log = logging.getLogger(__name__)


def node_types(
    extra: Mapping[str, NodeExecutor] | None = None, *, environment: NodeEnvironment | None = None
) -> NodeTypes:
    """All node types by name. Without an environment they can be described and checked, but not all executed.

    A plug-in may not replace a built-in type: a chain would then do something else on a machine that lacks the package.
    """
    built_in: list[NodeExecutor] = [
        PrintExecutor(),
        HttpExecutor(environment),
        SqlExecutor(environment),
        ShellExecutor(environment),
        PythonExecutor(),
        ChainExecutor(environment),
    ]
    types: dict[str, NodeExecutor] = {executor.name: executor for executor in built_in} | dict(extra or {})
    for executor in _plug_ins():
        if executor.name in types:
            _log.error("a plug-in of %s is left out: %r is the name of a built-in node type", PLUG_INS, executor.name)
        else:
            types[executor.name] = executor
    return NodeTypes(types, environment.secret_names if environment else SecretNames())


@cache
def _plug_ins() -> tuple[NodeExecutor, ...]:
    """One that cannot be loaded is left out and logged: it must not keep the platform from starting."""
    found = []
    for entry_point in entry_points(group=PLUG_INS):
        try:
            loaded: Any = entry_point.load()
            executor: NodeExecutor = loaded() if isinstance(loaded, type) else loaded
            if not isinstance(executor.name, str) or not issubclass(executor.cfg_model, BaseModel):
                raise TypeError("expected a name and a cfg_model")
        except Exception as error:
            where = f"{entry_point.name} = {entry_point.value}"
            _log.error("the node type %s of %s is left out: %s: %s", where, PLUG_INS, type(error).__name__, error)
        else:
            found.append(executor)
    return tuple(found)


def cfg_problems(types: NodeTypes, node_id: str, type_name: str, cfg: Mapping[str, Any]) -> list[str]:
    """One line for each problem of a cfg as it was written, expressions included. The type is a known one."""
    executor = types[type_name]
    compiled, problems = compile_cfg(cfg, SpecialFields.of(executor.cfg_model))
    problems += secret_problems(cfg, types.secret_names)
    problems += _schema_problems(executor, cfg, compiled)
    return [f"node {node_id}: {problem}" for problem in problems]


def dag_problems(types: NodeTypes, dag: Dag) -> list[str]:
    """One line for each expression that refers to a node which need not have ended before; all types are known."""
    return reference_problems(
        dag, {name: SpecialFields.of(executor.cfg_model) for name, executor in types.by_name.items()}
    )


def parse_cfg(executor: NodeExecutor, rendered: Mapping[str, Any]) -> BaseModel:
    """The cfg as the node type takes it; raises NodeFailed, which is not tried again."""
    try:
        cfg = executor.cfg_model.model_validate(rendered)
    except ValidationError as error:
        problems = [f"{path_text(path)}: {text}" for path, text in describe_errors(error)]
    else:
        problems = list(executor.problems(cfg)) if isinstance(executor, ChecksCfg) else []
        if not problems:
            return cfg
    raise NodeFailed("; ".join(problems), may_retry=False)


def _schema_problems(executor: NodeExecutor, cfg: Mapping[str, Any], compiled: CfgTemplate | None) -> list[str]:
    """A field with an expression has no value yet, so nothing is said about it."""
    templated = compiled.templated_paths if compiled else ()
    try:
        parsed = executor.cfg_model.model_validate(dict(cfg))
    except ValidationError as error:
        return [f"{path_text(path)}: {text}" for path, text in describe_errors(error) if not _concerns(path, templated)]
    if compiled is None or templated or not isinstance(executor, ChecksCfg):
        return []
    return list(executor.problems(parsed))


def _concerns(path: Path, templated: tuple[Path, ...]) -> bool:
    """Whether a problem is about a field with an expression, or about what contains one."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other in templated)

"""Expressions in the cfg of nodes, such as `${params.x}`, `${nodes.a.artifact.y}` and `${run.id}`.

A name that is not known is an error before the node runs; what can be known when a chain is saved, is an error then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from platform_defs.chains.dag import Dag
from platform_defs.chains.nodes.cfg import SpecialFields
from platform_defs.chains.nodes.port import NodeFailed
from platform_defs.chains.nodes.secrets import Path, path_text, referenced_name, text_leaves
from platform_defs.chains.nodes.urls import render_url
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import CompileError, ExpressionError, InvalidFields
from platform_defs.expressions.json_bodies import JsonTemplate, compile_json
from platform_defs.expressions.syntax import Reference
from platform_defs.expressions.templates import NullPolicy, Template, compile_template, unknown_references

ROOTS = ("params", "nodes", "run.id", "node.id", "node.attempt")
# how an expression begins that a literal field would not evaluate
_BEGINNINGS = ("${params.", "${nodes.", "${params[", "${nodes[", "${run.", "${node.")


@dataclass(frozen=True)
class CfgTemplate:
    """A compiled cfg; `literal` has the fields that are left as they are written."""

    template: JsonTemplate
    literal: Mapping[str, Any]
    urls: Mapping[str, Template]
    templated_paths: tuple[Path, ...]

    @cached_property
    def referenced_nodes(self) -> frozenset[str]:
        """The nodes whose artifacts are needed to render."""
        return frozenset(str(step[1]) for step in self.template.references if step[0] == "nodes" and len(step) > 1)

    def render(self, names: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """The cfg with all values. Raises NodeFailed, which names the place but never repeats a value."""
        try:
            context = Context(names, now)
            rendered: dict[str, Any] = self.template.render(context)
            for name, url in self.urls.items():
                rendered[name] = _render_url(name, url, context)
        except ExpressionError as error:
            raise NodeFailed(str(error), may_retry=False) from None
        for path in self.templated_paths:
            for _, text in text_leaves(_at(rendered, path)):
                if referenced_name(text) is not None:
                    raise NodeFailed(
                        f"{path_text(path)}: expected a reference to a secret to be written in the chain itself,"
                        " got one from an expression",
                        may_retry=False,
                    )
        return {**rendered, **self.literal}


def _render_url(name: str, url: Template, context: Context) -> Any:
    try:
        return render_url(url, context)
    except ExpressionError as error:
        raise error.at(f"cfg /{name}") from None


def compile_cfg(cfg: Mapping[str, Any], special: SpecialFields) -> tuple[CfgTemplate | None, list[str]]:
    """The compiled cfg, or one line for each problem."""
    literal = {name: value for name, value in cfg.items() if name in special.literal}
    others = {name: value for name, value in cfg.items() if name not in special.literal}
    problems = [
        f"{path_text(path)}: expected no expression here, because its value could change what is executed;"
        " the other fields of cfg are the place for values"
        for path, text in text_leaves(literal)
        if any(beginning in text for beginning in _BEGINNINGS)
    ]
    try:
        template = compile_json(others, null_policy=NullPolicy.ERROR, place="cfg")
    except InvalidFields as error:
        return None, [*problems, *(str(problem) for problem in error.problems)]
    unknown = unknown_references(template.references, ROOTS)
    problems += [f"cfg: {name} is not known; expected params.…, nodes.ID.artifact.… or run.id" for name in unknown]
    problems += [
        f"cfg: {_text(reference)} is not known; expected nodes.ID.artifact.…"
        for reference in sorted(template.references, key=str)
        if reference[0] == "nodes" and (len(reference) < 3 or reference[2] != "artifact")
    ]
    if problems:
        return None, problems
    urls = {
        name: compile_template(text, null_policy=NullPolicy.ERROR)
        for name, text in others.items()
        if name in special.url and isinstance(text, str)
    }
    return CfgTemplate(template, literal, urls, tuple(_templated_paths(others))), []


def reference_problems(dag: Dag, special: Mapping[str, SpecialFields]) -> list[str]:
    """One line for each expression that refers to a node which is not above the node that has the expression.

    `special` has the fields of each node type that are not rendered as others are.
    """
    problems = []
    above = _ancestors(dag)
    for node in dag.nodes:
        compiled, _ = compile_cfg(node.cfg, special.get(node.type, SpecialFields()))
        for other in sorted(compiled.referenced_nodes if compiled else ()):
            if other not in dag.by_id:
                problems.append(f"node {node.id}: cfg refers to the node {other}, which does not exist")
            elif other not in above[node.id]:
                problems.append(
                    f"node {node.id}: cfg refers to the node {other}, which need not have ended before it:"
                    f" expected {other} among dependsOn, or above one of them"
                )
    return problems


def _ancestors(dag: Dag) -> dict[str, frozenset[str]]:
    """Every node above each node. Only computed where a cfg has references, since it grows with the square."""
    referring = any("${" in text for node in dag.nodes for _, text in text_leaves(node.cfg))
    above: dict[str, frozenset[str]] = {}
    for node in dag.in_order if referring else ():
        above[node.id] = frozenset(node.depends_on).union(*(above[parent] for parent in node.depends_on))
    return above


def _templated_paths(cfg: Mapping[str, Any]) -> Iterator[Path]:
    for path, text in text_leaves(cfg):
        if "${" in text and not _is_constant(text):
            yield path


def _is_constant(text: str) -> bool:
    try:
        return compile_template(text).is_constant
    except CompileError:
        return False


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _text(reference: Reference) -> str:
    return ".".join(str(step) for step in reference)

"""Turns parsed expressions into closures over a context: literals, references and calls of white-listed functions."""

from collections.abc import Callable, Mapping
from typing import Any

from platform_defs.expressions import limits
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import CompileError, EvaluationFailed, InvalidTemplate, LimitExceeded
from platform_defs.expressions.functions import NOT_LITERAL, Function, FunctionRegistry
from platform_defs.expressions.syntax import CallNode, Expression, LiteralNode, Reference, ReferenceNode

# gives None where a value is missing
Evaluate = Callable[[Context], Any]


def collect_names(node: Expression, references: set[Reference], called: set[str]) -> None:
    """Adds the references of an expression, and the functions that it calls, to these sets."""
    if isinstance(node, ReferenceNode):
        references.add(node.steps)
    elif isinstance(node, CallNode):
        called.add(node.name)
        for argument in node.arguments:
            collect_names(argument, references, called)


def compile_expression(node: Expression, functions: FunctionRegistry, text: str) -> Evaluate:
    """Raises InvalidTemplate; `text` is the template around the expression."""
    if isinstance(node, LiteralNode):
        value = node.value
        return lambda context: value
    if isinstance(node, ReferenceNode):
        return _lookup(node.steps)
    function = functions.get(node.name)
    if function is None:
        known = ", ".join(functions) or "(none)"
        raise InvalidTemplate(text, node.position, f"one of the functions {known} instead of {node.name}")
    if not function.accepts(len(node.arguments)):
        expected = f"{function.arity} for {node.name} instead of {len(node.arguments)}"
        raise InvalidTemplate(text, node.position, expected)
    return _call(node, function, [compile_expression(argument, functions, text) for argument in node.arguments], text)


def _call(node: CallNode, function: Function, arguments: list[Evaluate], text: str) -> Evaluate:
    call = function.call
    if function.prepare is not None:
        literals = tuple(
            argument.value if isinstance(argument, LiteralNode) else NOT_LITERAL for argument in node.arguments
        )
        try:
            call = function.prepare(literals)
        except (CompileError, ValueError) as error:
            raise InvalidTemplate(text, node.position, f"arguments that {node.name} can use ({error})") from None
    takes_null, reads_clock, name = function.takes_null, function.reads_clock, function.name

    def evaluate(context: Context) -> Any:
        values = [argument(context) for argument in arguments]
        if None in values and not takes_null:
            return None
        try:
            result = call(context.now, *values) if reads_clock else call(*values)
        except ValueError as error:
            raise EvaluationFailed(f"{name}: {error}") from None
        except LimitExceeded as error:
            raise error.at(name) from None
        if isinstance(result, str) and len(result) > limits.OUTPUT_LENGTH:
            raise LimitExceeded(f"{name}: expected at most {limits.OUTPUT_LENGTH} characters, got {len(result)}")
        return result

    return evaluate


def _lookup(steps: Reference) -> Evaluate:
    root, *rest = steps
    match rest:
        case []:
            return lambda context: context.names.get(root)  # type: ignore[arg-type]
        case [str(name)]:

            def member(context: Context) -> Any:
                value = context.names.get(root)  # type: ignore[arg-type]
                return value.get(name) if type(value) is dict else _step(value, name)

            return member

    def walk(context: Context) -> Any:
        value = context.names.get(root)  # type: ignore[arg-type]
        for step in rest:
            value = _step(value, step)
        return value

    return walk


def _step(value: Any, step: str | int) -> Any:
    """A member of an object or an element of a list; None for every other value, whatever attributes it has."""
    if isinstance(step, str):
        return value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, list | tuple) and -len(value) <= step < len(value):
        return value[step]
    return None

"""Computes expressions of computed KPIs: decimal arithmetic, comparisons, CASE and five functions, as SQL means them.

A missing KPI is null, and so is whatever is computed from null or divided by zero. A comparison gives 1 or 0.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal

from sqlglot import exp

Number = Decimal | None
Values = Mapping[str, Number]
# 28 digits before the point, and enough behind it that ten of them are right after a few steps.
_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_MAX_DECIMALS = 30

ALLOWED = "arithmetic, comparisons, CASE, COALESCE, NULLIF, ROUND and ABS"


def find_unsupported(expression: exp.Expression) -> str | None:
    """The first part of a parsed expression that `evaluate` does not know, as SQL; None if there is none."""
    for node in expression.walk():
        is_text = isinstance(node, exp.Literal) and node.is_string
        is_if = isinstance(node, exp.If) and not isinstance(node.parent, exp.Case)
        if is_text or is_if or not isinstance(node, _KNOWN):
            return node.sql("mysql")
    return None


def evaluate(expression: exp.Expression, values: Values) -> Number:
    """The value of an expression in which each column is the name of a KPI. Raises DecimalException on overflow."""
    return _EVALUATORS[type(expression)](expression, values)


def _binary(combine: Callable[[Decimal, Decimal], Number]) -> Callable[[exp.Expression, Values], Number]:
    def compute(node: exp.Expression, values: Values) -> Number:
        left, right = evaluate(node.this, values), evaluate(node.expression, values)
        return None if left is None or right is None else combine(left, right)

    return compute


def _divide(left: Decimal, right: Decimal) -> Number:
    return None if right == 0 else _CONTEXT.divide(left, right)


def _divide_whole(left: Decimal, right: Decimal) -> Number:
    return None if right == 0 else _CONTEXT.divide_int(left, right)


def _remainder(left: Decimal, right: Decimal) -> Number:
    return None if right == 0 else _CONTEXT.remainder(left, right)


def _truth(condition: bool | None) -> Number:
    return None if condition is None else Decimal(int(condition))


def _condition(node: exp.Expression, values: Values) -> bool | None:
    value = evaluate(node, values)
    return None if value is None else value != 0


def _and(node: exp.Expression, values: Values) -> Number:
    left, right = _condition(node.this, values), _condition(node.expression, values)
    if left is False or right is False:
        return Decimal(0)
    return None if left is None or right is None else Decimal(1)


def _or(node: exp.Expression, values: Values) -> Number:
    left, right = _condition(node.this, values), _condition(node.expression, values)
    if left or right:
        return Decimal(1)
    return None if left is None or right is None else Decimal(0)


def _not(node: exp.Expression, values: Values) -> Number:
    condition = _condition(node.this, values)
    return None if condition is None else _truth(not condition)


def _is(node: exp.Expression, values: Values) -> Number:
    """IS NULL, IS TRUE and IS FALSE, which are never null themselves."""
    value = evaluate(node.this, values)
    if isinstance(node.expression, exp.Null):
        return _truth(value is None)
    wanted = evaluate(node.expression, values)
    return _truth(value is not None and (value != 0) == (wanted != 0))


def _case(node: exp.Expression, values: Values) -> Number:
    subject = None if node.this is None else evaluate(node.this, values)
    for branch in node.args["ifs"]:
        if node.this is None:
            holds = _condition(branch.this, values)
        else:
            compared = evaluate(branch.this, values)
            holds = subject is not None and compared is not None and subject == compared
        if holds:
            return evaluate(branch.args["true"], values)
    default = node.args.get("default")
    return None if default is None else evaluate(default, values)


def _coalesce(node: exp.Expression, values: Values) -> Number:
    found = (evaluate(each, values) for each in (node.this, *node.expressions))
    return next((value for value in found if value is not None), None)


def _nullif(node: exp.Expression, values: Values) -> Number:
    value, other = evaluate(node.this, values), evaluate(node.expression, values)
    return None if value is not None and value == other else value


def _round(node: exp.Expression, values: Values) -> Number:
    """Half away from zero, as databases round exact numbers."""
    value, decimals = evaluate(node.this, values), Decimal(0)
    if (argument := node.args.get("decimals")) is not None:
        given = evaluate(argument, values)
        if given is None:
            return None
        decimals = given
    if value is None:
        return None
    digits = int(max(Decimal(-_MAX_DECIMALS), min(Decimal(_MAX_DECIMALS), decimals)))
    away = Context(prec=_CONTEXT.prec + _MAX_DECIMALS, rounding=ROUND_HALF_UP)
    return value.quantize(Decimal(1).scaleb(-digits), context=away)


def _between(node: exp.Expression, values: Values) -> Number:
    value, low, high = (evaluate(each, values) for each in (node.this, node.args["low"], node.args["high"]))
    if value is None or low is None or high is None:
        return None
    return _truth(low <= value <= high)


def _in(node: exp.Expression, values: Values) -> Number:
    value = evaluate(node.this, values)
    others: Sequence[Number] = [evaluate(each, values) for each in node.expressions]
    if value is None:
        return None
    if value in others:
        return Decimal(1)
    return None if None in others else Decimal(0)


def _negate(node: exp.Expression, values: Values) -> Number:
    value = evaluate(node.this, values)
    return None if value is None else -value


def _absolute(node: exp.Expression, values: Values) -> Number:
    value = evaluate(node.this, values)
    return None if value is None else abs(value)


_EVALUATORS: Mapping[type[exp.Expression], Callable[[exp.Expression, Values], Number]] = {
    exp.Column: lambda node, values: values.get(node.name),
    exp.Literal: lambda node, values: Decimal(node.name),
    exp.Null: lambda node, values: None,
    exp.Boolean: lambda node, values: _truth(bool(node.this)),
    exp.Paren: lambda node, values: evaluate(node.this, values),
    exp.Neg: _negate,
    exp.Add: _binary(_CONTEXT.add),
    exp.Sub: _binary(_CONTEXT.subtract),
    exp.Mul: _binary(_CONTEXT.multiply),
    exp.Div: _binary(_divide),
    exp.IntDiv: _binary(_divide_whole),
    exp.Mod: _binary(_remainder),
    exp.EQ: _binary(lambda left, right: _truth(left == right)),
    exp.NEQ: _binary(lambda left, right: _truth(left != right)),
    exp.GT: _binary(lambda left, right: _truth(left > right)),
    exp.GTE: _binary(lambda left, right: _truth(left >= right)),
    exp.LT: _binary(lambda left, right: _truth(left < right)),
    exp.LTE: _binary(lambda left, right: _truth(left <= right)),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Round: _round,
    exp.Abs: _absolute,
}
# Parts that belong to the expressions above and are not evaluated by themselves.
_PARTS = (exp.Identifier, exp.If)
_KNOWN = (*_EVALUATORS, *_PARTS)

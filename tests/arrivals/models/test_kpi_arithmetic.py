"""Computed KPIs: what an expression gives, compared with what MySQL gives for the same expression."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from platform_defs.arrivals.models.kpi_arithmetic import evaluate
from platform_defs.arrivals.models.kpi_expressions import parse_expression
from platform_defs.store.engine import read

KNOWN = ("A", "B", "C-1")


def compute(expression: str, **values: Any) -> Decimal | None:
    parsed = parse_expression(expression, KNOWN)
    numbers = {"A": values.get("A"), "B": values.get("B"), "C-1": values.get("C")}
    return evaluate(
        parsed.tree,
        {
            safe: None if numbers[kpi_id] is None else Decimal(str(numbers[kpi_id]))
            for kpi_id, safe in parsed.safe_names.items()
        },
    )


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("A / B", {"A": 1, "B": 8}, "0.125"),
        ("A / B", {"A": 1, "B": 0}, None),
        ("A % B", {"A": 7, "B": 0}, None),
        ("A / NULLIF(B, 0)", {"A": 1, "B": 0}, None),
        ("A + B", {"A": 1}, None),
        ("COALESCE(A, B, 5)", {}, "5"),
        ("C-1 - A", {"C": 10, "A": 3}, "7"),
        ("ROUND(A, 1)", {"A": "2.25"}, "2.3"),
        ("ROUND(A)", {"A": "-2.5"}, "-3"),
        ("ROUND(A, -2)", {"A": "1250"}, "1300"),
        ("ABS(A - B)", {"A": 1, "B": 3}, "2"),
        ("CASE WHEN A > B THEN A ELSE B END", {"A": 1, "B": 3}, "3"),
        ("CASE A WHEN 1 THEN 10 WHEN 2 THEN 20 END", {"A": 2}, "20"),
        ("CASE A WHEN 1 THEN 10 END", {"A": 3}, None),
        ("A > B", {"A": 2, "B": 1}, "1"),
        ("A IS NULL", {}, "1"),
        ("A IS NOT NULL AND A > 1", {}, "0"),
        ("A > 1 OR B > 1", {"B": 2}, "1"),
        ("NOT A > 1", {}, None),
        ("A * 0.1 + B * 0.2", {"A": 1, "B": 1}, "0.3"),
        ("A * B", {"A": "9007199254740993", "B": "3"}, "27021597764222979"),
    ],
)
def test_an_expression_gives(expression: str, values: dict[str, Any], expected: str | None) -> None:
    assert compute(expression, **values) == (None if expected is None else Decimal(expected))


_LEAVES = st.sampled_from(["A", "B", "C-1", "0", "1", "2.5", "NULL"])


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "<", "<=", "=", "<>", "AND", "OR"])
    return (
        st.builds(lambda left, op, right: f"({left} {op} {right})", inner, operators, inner)
        | st.builds(lambda value: f"ABS({value})", inner)
        | st.builds(lambda value, other: f"COALESCE({value}, {other})", inner, inner)
        | st.builds(lambda value, other: f"NULLIF({value}, {other})", inner, inner)
        | st.builds(lambda when, then, other: f"CASE WHEN {when} THEN {then} ELSE {other} END", inner, inner, inner)
    )


@pytest.mark.parametrize("engine", [pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    expression=st.recursive(_LEAVES, _combine, max_leaves=6),
    values=st.fixed_dictionaries(dict.fromkeys("ABC", st.none() | st.integers(-9, 9))),
)
def test_an_expression_gives_what_mysql_gives(engine: Engine, expression: str, values: dict[str, int | None]) -> None:
    ours = compute(f"{expression} + 0 * COALESCE(A, 0)", **values)
    sql = expression.replace("C-1", ":C").replace("A", ":A").replace("B", ":B")
    for name in ("AND", "ABS", "COALESCE", "NULLIF", "CASE"):  # the words that hold these letters
        sql = sql.replace(name.replace("A", ":A").replace("B", ":B"), name)
    theirs = read(engine, lambda connection: connection.scalar(text(f"SELECT {sql}"), values))
    if ours is None or theirs is None:
        assert ours is theirs is None
    else:
        # MySQL keeps four decimals more with every division
        assert abs(ours - Decimal(str(theirs))) < Decimal("0.01") * max(1, abs(ours))

"""Contexts and generated values for the tests of expressions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from platform_defs.expressions.context import Context

NOW = datetime(2025, 9, 20, 12, 30, 15, 250_000, tzinfo=UTC)

# texts that mean something to a query, a header, a path or JSON come up more often than chance would have it
HOSTILE = st.sampled_from(
    ["&a=b", "\r\nX: 1", "\n", "\x00", "../..", "..", ".", "/", "//", "%2e%2e", "\\", '","admin":true,"', "${now()}",
     "#", "?", ";", "=", "+", " ", "", "é", "\ud800", "%0d%0a", "\u2028", "a,b", "\x85", "\x7f", "\t"]
)  # fmt: skip
TEXTS = st.one_of(st.text(), HOSTILE, st.lists(HOSTILE | st.text(max_size=3), max_size=4).map("".join))
INSTANTS = st.integers(0, 283_000_000_000_000_000).map(
    lambda microseconds: datetime(1000, 1, 2, tzinfo=UTC) + timedelta(microseconds=microseconds)
)
SCALARS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def context(**names: Any) -> Context:
    return Context(names, now=NOW)

"""Each standard function by example, and the laws that they keep."""

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.canonical import canonical_hash
from platform_defs.expressions.errors import EvaluationFailed
from platform_defs.expressions.templates import compile_template
from platform_defs.expressions.values import instant_text
from tests.expressions.values import INSTANTS, JSON, NOW, context

DOCUMENT = {"items": [{"id": 1, "next-id": "b"}, {"id": 2}], "total": None}


def call(text: str, **names: Any) -> Any:
    return compile_template(f"${{{text}}}").render(context(**names))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("now()", NOW),
        ("formatDateTime(t)", "2025-09-20T12:30:15.250Z"),
        ("formatDateTime(t, 'ISO')", "2025-09-20T12:30:15.250Z"),
        ("formatDateTime(t, 'yyyy/MM/dd')", "2025/09/20"),
        ("formatDateTime('2025-09-20T23:30:00-02:00', \"yyyy-MM-dd'T'HH:mm:ss'Z'\")", "2025-09-21T01:30:00Z"),
        ("formatDateTime(t, pattern)", "20-9-25"),
        ("parseDateTime('2003 May 7')", datetime(2003, 5, 7, tzinfo=UTC)),
        ("parseDateTime('07.05.2003', 'dd.MM.yyyy')", datetime(2003, 5, 7, tzinfo=UTC)),
        ("parseDateTime('2003 250', 'yyyy SSS')", datetime(2003, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
        ("plusSeconds(t, 0.75)", NOW.replace(second=16, microsecond=0)),
        ("minusSeconds(t, 15)", NOW.replace(second=0)),
        ("plusDays(t, -20)", NOW.replace(month=8, day=31)),
        ("formatDateTime(minusSeconds('2025-09-21T00:00:00Z', 1), 'yyyy/MM/dd')", "2025/09/20"),
        ("epochMillis(t)", 1758371415250),
        ("epochMillis('1969-12-31T23:59:59.999500Z')", -1),
        ("coalesce(missing, null, 0, 1)", 0),
        ("concat('a', 1, true, 1.5, t)", "a1true1.52025-09-20T12:30:15.250Z"),
        ("join(ids, ' OR ')", "1 OR b"),
        ("join(nothing, ',')", ""),
        ("lower('ÄB')", "äb"),
        ("upper('äb')", "ÄB"),
        ("trim('  a b\\n')", "a b"),
        ("length('häh')", 3),
        ("length(ids)", 3),
        ("replace('a.b.c', '.', '/')", "a/b/c"),
        ("substring('abcdef', 2)", "cdef"),
        ("substring('abcdef', 2, 4)", "cd"),
        ("substring('abc', 2, 99)", "c"),
        ("toText(1.0)", "1.0"),
        ("toText(price)", "0.10"),
        ("toText(false)", "false"),
        ("toText(ids)", '[1,null,"b"]'),
        ("toNumber(' 42 ')", 42),
        ("toNumber('-1.50')", -1.5),
        ("jsonPath(document, '$.items[1].id')", 2),
        ("jsonPath(document, 'items[*].next-id')", ["b"]),
        ("jsonPath(document, '$.items[?@.id > 1].id')", [2]),
        ("jsonPath(document, '$.none[*]')", []),
        ("hash('a')", hashlib.sha256(b'"a"').hexdigest()),
    ],
)
def test_examples(text: str, value: object) -> None:
    names = {
        "t": NOW,
        "pattern": "d-M-yy",
        "ids": [1, None, "b"],
        "nothing": [],
        "document": DOCUMENT,
        "price": Decimal("0.10"),
    }
    result = call(text, **names)
    assert (type(result), result) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("upper(1)", "upper: expected a text, got a number"),
        ("join('ab', ',')", "join: expected a list, got a text"),
        ("join(nested, ',')", "join: expected a text, a number, a boolean or an instant, got a list"),
        ("length(1)", "length: expected a text, a list or an object, got a number"),
        ("replace('a', '', 'b')", "replace: expected a text to search for, got an empty one"),
        ("substring('abc', -1)", "substring: expected 0 <= begin <= end"),
        ("substring('abc', 1.5)", "substring: expected a whole number, got a number"),
        ("toNumber('0x10')", "toNumber: expected a number of at most 40 characters, got another text"),
        ("toNumber(true)", "toNumber: expected a text, got a boolean"),
        ("plusDays('2025-01-01', 9999999)", "plusDays: expected an instant between the years 1 and 9999"),
        ("plusSeconds('2025-01-01', '1')", "plusSeconds: expected a number, got a text"),
        ("formatDateTime('2025-01-01', secret)", "formatDateTime: expected one of the letters y M d H m s S X"),
        ("parseDateTime('2025', 'yyyy-MM')", "parseDateTime: expected a time in the form yyyy-MM"),
        ("parseDateTime('12:30', 'HH:mm')", "parseDateTime: expected a pattern with a year, got HH:mm"),
        ("toText(huge)", "toText: expected a number of at most 40 digits, got a longer one"),
        ("toText(infinite)", "toText: expected a finite number"),
        ("epochMillis(secret)", "epochMillis: expected a time such as"),
    ],
)
def test_arguments_that_a_function_cannot_use_are_named_but_not_repeated(text: str, reason: str) -> None:
    with pytest.raises(EvaluationFailed) as failed:
        call(text, nested=[[1]], secret="QQQ", huge=Decimal("1e400"), infinite=float("inf"))
    assert reason in str(failed.value)
    assert "QQQ" not in str(failed.value)


@given(JSON)
def test_hash_is_the_platforms_hash_of_canonical_json(value: object) -> None:
    if value is not None:
        assert call("hash(v)", v=value) == canonical_hash(value)


@given(INSTANTS)
def test_an_instant_and_its_text_are_the_same_to_every_function(instant: datetime) -> None:
    text = instant_text(instant)
    assert call("parseDateTime(t)", t=text) == instant
    for function in ("epochMillis(t)", "formatDateTime(t)", "formatDateTime(t, 'yyyyMMddHHmmssSSSSSS')"):
        assert call(function, t=text) == call(function, t=instant)
    assert call("hash(t)", t=instant) == call("hash(t)", t=text)


@given(INSTANTS, st.integers(-(10**6), 10**6))
def test_adding_and_subtracting_seconds_are_inverse(instant: datetime, seconds: int) -> None:
    try:
        moved = call("plusSeconds(t, n)", t=instant, n=seconds)
    except EvaluationFailed:
        return
    assert call("minusSeconds(t, n)", t=moved, n=seconds) == instant


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_of_bounded_length_survives_its_text(number: float) -> None:
    if len(str(number)) <= 40:
        assert call("toNumber(toText(n))", n=number) == number

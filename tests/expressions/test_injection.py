"""No value, whatever it contains, adds a parameter, a header, a segment or a key to a request."""

import json
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.expressions import limits
from platform_defs.expressions.checks import compile_check
from platform_defs.expressions.errors import (
    EvaluationFailed,
    InvalidField,
    InvalidFields,
    InvalidTemplate,
    LimitExceeded,
    MissingValue,
    RenderError,
    UnsafeValue,
)
from platform_defs.expressions.fields import (
    Field,
    compile_headers,
    compile_query,
    encode_pairs,
)
from platform_defs.expressions.json_bodies import compile_json
from platform_defs.expressions.templates import NullPolicy
from platform_defs.expressions.url_paths import compile_url_path
from platform_defs.expressions.values import OMITTED, is_utf8, json_value, scalar_text
from tests.expressions.values import JSON, NOW, SCALARS, TEXTS, context

QUERY = compile_query({"db": "pubmed", "term": "${q}", "note": "<${q}>", "retmax": 100})
HEADERS = compile_headers({"Accept": "application/json", "X-Value": "${q}", "X-Mixed": "a ${q} b"})
ONE_SEGMENT = compile_url_path("/works/${q}/agency")
SEVERAL = compile_url_path("/files/${segments(q)}/end")
BODY = compile_json({"filter": {"term": "${q}", "note": "<${t}>"}, "ids": ["${q}", 1], "fixed": None})


@given(SCALARS)
def test_no_value_adds_a_query_parameter(value: Any) -> None:
    try:
        pairs = QUERY.render(context(q=value))
    except UnsafeValue:
        assert not is_utf8(value)
        return
    text = scalar_text(value)
    expected = [("db", "pubmed"), ("term", text), ("note", f"<{text}>"), ("retmax", "100")]
    assert pairs == expected
    assert parse_qsl(encode_pairs(pairs), keep_blank_values=True, strict_parsing=True) == expected
    assert set(encode_pairs(pairs)) <= set(map(chr, range(0x21, 0x7F))) - set("#?/\\\"'<>")
    assert httpx.URL("https://api.test/x", params=pairs).params.multi_items() == expected


@given(st.lists(st.none() | SCALARS, max_size=5))
def test_a_list_repeats_its_name_or_is_joined_without_gaining_elements(values: list[Any]) -> None:
    query = compile_query([Field(name="id", template="${q}"), Field(name="ids", template="${q}", joined_by=",")])
    try:
        pairs = query.render(context(q=values))
    except UnsafeValue:
        assert any(isinstance(value, str) and ("," in value or not is_utf8(value)) for value in values)
        return
    texts = [scalar_text(value) for value in values if value is not None]
    assert pairs[: len(texts)] == [("id", text) for text in texts]
    assert pairs[len(texts) :] == ([("ids", ",".join(texts))] if texts else [])
    assert not texts or pairs[-1][1].split(",") == texts


@given(SCALARS)
def test_no_value_adds_a_header(value: Any) -> None:
    try:
        pairs = HEADERS.render(context(q=value))
    except UnsafeValue:
        assert not (value.isascii() and value.isprintable() and value == value.strip())
        return
    text = scalar_text(value)
    assert pairs == [("Accept", "application/json"), ("X-Value", text), ("X-Mixed", f"a {text} b")]
    lines = "".join(f"{name}: {content}\r\n" for name, content in pairs)
    assert lines.encode("latin-1").splitlines() == [f"{name}: {content}".encode() for name, content in pairs]
    assert list(httpx.Headers(pairs).multi_items()) == [(name.lower(), content) for name, content in pairs]


@given(SCALARS)
def test_no_value_adds_leaves_or_empties_a_segment_of_the_path(value: Any) -> None:
    try:
        path = ONE_SEGMENT.render(context(q=value))
    except (UnsafeValue, LimitExceeded):
        return
    assert [unquote(segment) for segment in path.split("/")] == ["", "works", scalar_text(value), "agency"]
    assert httpx.URL(f"https://api.test{path}?x=1").raw_path == f"{path}?x=1".encode()
    assert ".." not in path.split("/")


@given(TEXTS | st.lists(SCALARS, max_size=4))
def test_declared_segments_stay_below_their_place(value: Any) -> None:
    try:
        path = SEVERAL.render(context(q=value))
    except (RenderError, EvaluationFailed):
        return
    parts = value.split("/") if isinstance(value, str) else [scalar_text(part) for part in value]
    assert [unquote(segment) for segment in path.split("/")] == ["", "files", *parts, "end"]
    assert httpx.URL(f"https://api.test{path}").raw_path == path.encode()


@pytest.mark.parametrize("value", ["", ".", "..", "a/../b", "..\\b", "../x", "\ud800", ["a"], {"a": 1}, None])
def test_values_that_could_leave_their_segment_are_refused(value: object) -> None:
    with pytest.raises((UnsafeValue, MissingValue), match=r"^path: "):
        ONE_SEGMENT.render(context(q=value))


def test_dots_of_template_and_value_together_make_no_step_upwards() -> None:
    for text in ("/a/.${q}/b", "/a/%2e${q}/b", "/a/${q}${q}", "/a/.${segments(q)}"):
        with pytest.raises(UnsafeValue):
            compile_url_path(text).render(context(q="."))
    assert compile_url_path("/v${q}").render(context(q="1..2")) == "/v1..2"


@given(JSON, TEXTS)
def test_no_value_adds_a_key_beside_its_place_in_a_json_body(value: Any, text: str) -> None:
    try:
        body = BODY.render(context(q=value, t=text))
    except UnsafeValue:
        assert not is_utf8(json.dumps([value, text], ensure_ascii=False))
        return
    if value is None:
        assert body == {"filter": {"note": f"<{text}>"}, "ids": [1], "fixed": None}
        return
    assert body == {"filter": {"term": value, "note": f"<{text}>"}, "ids": [value, 1], "fixed": None}
    encoded = BODY.encode(context(q=value, t=text))
    assert encoded is not None
    assert json.loads(encoded) == json_value(body)


@given(SCALARS)
def test_no_value_adds_a_form_field(value: Any) -> None:
    form = compile_query({"id": "${q}", "db": "pubmed"})
    try:
        body = encode_pairs(form.render(context(q=value)))
    except UnsafeValue:
        return
    assert parse_qsl(body, keep_blank_values=True) == [("id", scalar_text(value)), ("db", "pubmed")]


def test_values_keep_their_types_in_a_json_body() -> None:
    template = compile_json({"n": "${n}", "b": "${b}", "t": "at ${t}", "when": "${t}", "$x": "$${lit}", "l": ["${l}"]})
    rendered = template.render(context(n=1.5, b=False, t=NOW, l={"a": [1]}))
    assert rendered == {
        "n": 1.5, "b": False, "t": "at 2025-09-20T12:30:15.250Z", "when": "2025-09-20T12:30:15.250Z", "$x": "${lit}",
        "l": [{"a": [1]}],
    }  # fmt: skip
    assert template.references == {("n",), ("b",), ("t",), ("l",)}
    node = compile_json({"url": "${params.x}"}, null_policy=NullPolicy.ERROR, place="cfg of node a")
    with pytest.raises(MissingValue, match=r"^cfg of node a /url: expected a value, but params\.x is missing or null$"):
        node.render(context(params={}))
    assert compile_json("${missing}").render(context()) is OMITTED
    assert compile_json("${missing}").encode(context()) is None


@pytest.mark.parametrize("policy", list(NullPolicy))
def test_missing_parameters_follow_the_null_policy_and_required_ones_never_vanish(policy: NullPolicy) -> None:
    optional = compile_query([Field(name="a", template="${x}")], null_policy=policy)
    if policy is NullPolicy.ERROR:
        with pytest.raises(MissingValue, match=r"^query parameter a: expected a value, but x is missing or null$"):
            optional.render(context())
    else:
        assert optional.render(context()) == ([] if policy is NullPolicy.OMIT else [("a", "")])
    own = compile_query([Field(name="a", template="${x}", null_policy=NullPolicy.OMIT, default=7)], null_policy=policy)
    assert own.render(context()) == [("a", "7")]
    required = compile_query([Field(name="a", template="${x}", required=True)])
    for missing in (None, [], [None]):
        with pytest.raises(MissingValue, match=r"^query parameter a: "):
            required.render(context(x=missing))


def test_a_check_refuses_values_before_any_request_and_does_not_repeat_them() -> None:
    doi = compile_check(pattern=r"10\.[0-9]{4,9}/\S+")
    sort = compile_check(allowed=["asc", "desc"])
    query = compile_query(
        [Field(name="doi", template="${doi}", check=doi), Field(name="order", template="${order}", check=sort)]
    )
    assert query.render(context(doi="10.1234/x", order="asc")) == [("doi", "10.1234/x"), ("order", "asc")]
    assert query.render(context(doi=["10.1234/x", "10.1234/y"]))[1] == ("doi", "10.1234/y")
    for names in (
        {"doi": "10.1234/secret x"},
        {"doi": ["10.1234/x", "secret"]},
        {"order": "secret"},
        {"doi": "9" * 5000},
    ):
        with pytest.raises(UnsafeValue, match=r"^query parameter (doi|order): expected") as refused:
            query.render(context(**names))
        assert "secret" not in str(refused.value)
    short = compile_headers([Field(name="X-A", template="${a}", check=compile_check(max_length=3))])
    assert short.render(context(a="abc")) == [("X-A", "abc")]
    with pytest.raises(UnsafeValue, match="header X-A: expected at most 3 characters, got 4"):
        short.render(context(a="abcd"))
    body = compile_json({"order": ["${order}"], "other": "${order}"}, checks={"/order/0": sort})
    with pytest.raises(UnsafeValue, match=r"^body /order/0: expected one of asc, desc"):
        body.render(context(order="secret"))
    with pytest.raises(InvalidFields, match="body /none: expected a template here"):
        compile_json({"order": "x"}, checks={"/none": sort})
    with pytest.raises(InvalidField, match="regular expression"):
        compile_check(pattern="(")


@pytest.mark.parametrize(
    ("compiled", "fields", "problem"),
    [
        (compile_headers, {"Bad Name": "x"}, "expected a header name"),
        (compile_headers, {"X:\r\nY": "x"}, "expected a header name"),
        (compile_headers, {"X-A": "a\r\nX-B: b"}, "expected visible ASCII"),
        (compile_headers, {"X-A": " a"}, "expected visible ASCII"),
        (compile_headers, {"Content-Length": "3"}, "written by the HTTP client"),
        (compile_headers, {"transfer-encoding": "chunked"}, "written by the HTTP client"),
        (compile_headers, {"X-A": "1", "x-a": "2"}, "once"),
        (compile_query, {"": "x"}, "expected a name"),
        (compile_query, {"a\n": "x"}, "expected a name"),
        (compile_query, {"a": "${"}, "position 3"),
        (compile_query, {"a": float("nan")}, "finite"),
    ],
)
def test_fields_that_can_never_be_rendered_safely_do_not_compile(compiled: Any, fields: Any, problem: str) -> None:
    with pytest.raises(InvalidFields, match=problem):
        compiled(fields)


def test_all_problems_of_a_request_are_reported_together() -> None:
    with pytest.raises(InvalidFields) as refused:
        compile_query({"a": "${", "b": "fine", "c": "${nope()}"})
    assert [problem.where for problem in refused.value.problems] == ["query parameter a", "query parameter c"]
    with pytest.raises(InvalidFields) as refused:
        compile_json({"a": ["${", {"b/c": "${1"}], "${k}": 1, "d": float("inf")})
    assert [problem.where for problem in refused.value.problems][-1:] == ["body /"]
    with pytest.raises(InvalidFields) as refused:
        compile_json({"a": ["${", {"b/c": "${1"}], "d": float("inf")})
    assert [problem.where for problem in refused.value.problems] == ["body /a/0", "body /a/1/b~1c", "body /d"]


@pytest.mark.parametrize(
    "text",
    ["works", "//evil.test/x", "/a?b=${q}", "/a#b", "/a b", "/a/../${q}", "/%2e%2E/x", "/%2${q}", "/a\\b", "/$${x}"],
)
def test_templates_that_are_no_paths_do_not_compile(text: str) -> None:
    with pytest.raises(InvalidTemplate):
        compile_url_path(text)


def test_several_segments_only_where_the_template_says_so() -> None:
    assert ONE_SEGMENT.render(context(q="10.1/a b")) == "/works/10.1%2Fa%20b/agency"
    assert SEVERAL.render(context(q="a/b c")) == "/files/a/b%20c/end"
    assert SEVERAL.render(context(q=["a/b", 3])) == "/files/a%2Fb/3/end"
    assert (SEVERAL.functions, SEVERAL.references) == (frozenset(), {("q",)})
    for value in ("a//b", "/a", "a/", "a/../b", ["a", ""], []):
        with pytest.raises((UnsafeValue, EvaluationFailed)):
            SEVERAL.render(context(q=value))
    with pytest.raises(InvalidFields):
        compile_query({"a": "${segments(q)}"})


@pytest.mark.parametrize(
    "number",
    [float("inf"), float("nan"), pytest.param(10**5000, id="long"), Decimal("1e400"), Decimal("nan"), object()],
)
def test_numbers_that_cannot_be_written_are_refused_in_every_place(number: object) -> None:
    for template in (QUERY, HEADERS, ONE_SEGMENT, BODY):
        with pytest.raises((UnsafeValue, EvaluationFailed), match="expected a"):
            template.render(context(q=number, t=""))


def test_long_and_exact_numbers_keep_every_digit() -> None:
    numbers = context(q=[10**400, Decimal("0.10"), Decimal("7"), 1e22])
    texts = [str(10**400), "0.10", "7", "1e+22"]
    assert compile_query([Field(name="n", template="${q}")]).render(numbers) == [("n", text) for text in texts]
    assert compile_json("${q}").render(numbers) == [10**400, 0.1, 7, 1e22]


def test_a_request_has_a_largest_size() -> None:
    big = "x" * (limits.OUTPUT_LENGTH // 2 + 1)
    with pytest.raises(LimitExceeded):
        compile_query({"a": "${q}", "b": "${q}"}).render(context(q=big))
    with pytest.raises(LimitExceeded):
        compile_json(["${q}", "${q}"]).encode(context(q=big))
    deep: Any = 1
    for _ in range(limits.DEPTH + 1):
        deep = [deep]
    with pytest.raises(UnsafeValue, match="within each other"):
        compile_json({"a": "${q}"}).render(context(q=deep))
    with pytest.raises(InvalidFields, match="within each other"):
        compile_json(deep)

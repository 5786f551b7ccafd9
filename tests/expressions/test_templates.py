"""Templates: what they give, what they refer to, and how they are refused."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.expressions import limits
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import (
    EvaluationFailed,
    ExpressionError,
    InvalidField,
    InvalidTemplate,
    LimitExceeded,
    MissingValue,
)
from platform_defs.expressions.functions import Function
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.templates import NullPolicy, compile_template, unknown_references
from platform_defs.expressions.values import OMITTED
from tests.expressions.values import JSON, NOW, TEXTS, context

WINDOW = {"from": datetime(2025, 9, 20, tzinfo=UTC), "to": "2025-09-21T00:00:00Z"}


def render(text: str, policy: NullPolicy = NullPolicy.OMIT, **names: Any) -> Any:
    return compile_template(text, null_policy=policy).render(context(**names))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("plain $ text }", "plain $ text }"),
        ("${page.offset}", 100),
        ("${ page.offset }", 100),
        ("${flags[0]}", True),
        ("${flags[-1]}", False),
        ('${odd["key with-dash"]}', "quoted"),
        ("${odd['it\\'s']}", "escaped"),
        ("${message.next-cursor}", "abc"),
        ("${nodes.1.artifact.y}", 7),
        ("offset ${page.offset} of ${page.size}", "offset 100 of 20"),
        ("$${page.offset}", "${page.offset}"),
        ("$${${page.offset}}", "${100}"),
        ("${'a}b'}", "a}b"),
        ('${"line\\nbreak \\u00e9"}', "line\nbreak é"),
        ("${-1.5e2}", -150.0),
        ("${true}", True),
        ("from:${window.from}", "from:2025-09-20T00:00:00Z"),
        ("is ${flags[0]}", "is true"),
        ("${upper(concat('a', page.offset, lower('B')))}", "A100B"),
    ],
)
def test_a_template_renders_typed_values_and_texts(text: str, value: object) -> None:
    names = {
        "page": {"offset": 100, "size": 20},
        "flags": [True, False],
        "odd": {"key with-dash": "quoted", "it's": "escaped"},
        "message": {"next-cursor": "abc"},
        "nodes": {"1": {"artifact": {"y": 7}}},
        "window": WINDOW,
    }
    rendered = render(text, **names)
    assert (type(rendered), rendered) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("${window.from", 14, "closing }"),
        ("${", 3, "a name"),
        ("x ${} y", 5, "a name"),
        ("${a b}", 5, "closing }"),
        ("${uper(a)}", 3, "upper"),
        ("ab ${upper(a, b)}", 6, "1 argument for upper instead of 2"),
        ("${concat()}", 3, "at least 1 arguments"),
        ("${upper(a}", 10, "a comma or a closing )"),
        ("${'open}", 3, "a closing '"),
        ("${a.}", 5, "a name after the dot"),
        ("${a[x]}", 5, "an index or a key in quotes"),
        ("${a[0}", 6, "a closing ]"),
        ("${'\\q'}", 5, "after the backslash"),
        ("${'\\ud800'}", 10, "no half of a surrogate pair"),
        ("${1e999}", 3, "not infinite"),
        ("${" + "9" * 50 + "}", 3, "at most 40 characters"),
        ("${" + "upper(" * 40 + "a" + ")" * 40 + "}", 201, "at most 32 calls"),
        ("x" * (limits.TEMPLATE_LENGTH + 1), limits.TEMPLATE_LENGTH + 1, "at most 16384 characters"),
        ("${formatDateTime(a, 'YYYY')}", 3, "y (Y is the year of the week)"),
        ("${jsonPath(a, '$.x[')}", 3, "unbalanced brackets"),
        ("${jsonPath(a, b)}", 3, "in quotes"),
        ("${a.__class__()}", 14, "closing }"),
        ("${a + 1}", 5, "closing }"),
        ("${(a)}", 3, "a name"),
    ],
)
def test_what_does_not_compile_names_the_position_and_what_was_expected(
    text: str, position: int, expected: str
) -> None:
    with pytest.raises(InvalidTemplate) as refused:
        compile_template(text)
    assert refused.value.position == position
    assert expected in refused.value.expected
    assert "\n" not in str(refused.value)


@given(st.text("${}'\"\\ab.[]()0,-", max_size=40) | st.text())
def test_any_text_compiles_or_is_refused_at_a_position_within_it(text: str) -> None:
    try:
        position = len(compile_template(text).text)
    except InvalidTemplate as refused:
        position = refused.position - 1
    assert 0 <= position <= len(text)


@given(TEXTS)
def test_a_text_without_openings_is_itself_and_escaped_openings_come_back(text: str) -> None:
    escaped = text.replace("${", "$${")
    if "$${" in escaped.replace("$${", ""):  # "$${" itself is written with an expression, see the grammar
        return
    assert render(escaped) == escaped.replace("$${", "${")


@given(TEXTS)
def test_a_value_is_never_read_as_a_template(text: str) -> None:
    assert render("${a}", a=text) == text
    assert render("<${a}>", a=text) == f"<{text}>"


def test_a_template_tells_the_names_and_functions_that_it_uses() -> None:
    template = compile_template("${coalesce(params.x, nodes.a.artifact.y[0])} ${now()} $${no.name}")
    assert template.references == {("params", "x"), ("nodes", "a", "artifact", "y", 0)}
    assert template.functions == {"coalesce", "now"}
    assert unknown_references(template.references, ["params.x", "nodes.a.artifact"]) == []
    assert unknown_references(template.references, ["params.y", "nodes.ab"]) == ["nodes.a.artifact.y[0]", "params.x"]


def test_a_white_list_refuses_functions_at_compile_time() -> None:
    allowed = STANDARD_FUNCTIONS.restricted_to(["now", "formatDateTime", "coalesce"])
    compile_template("${formatDateTime(now(), 'yyyy')}", functions=allowed)
    with pytest.raises(InvalidTemplate, match="one of the functions coalesce, formatDateTime, now instead of upper"):
        compile_template("${coalesce(upper(a), 'b')}", functions=allowed)
    with pytest.raises(InvalidField, match="got exec"):
        STANDARD_FUNCTIONS.restricted_to(["now", "exec"])
    with pytest.raises(InvalidTemplate, match="upper"):
        compile_template("${twice(1)}")
    twice = Function("twice", lambda number: 2 * number, 1, 1)
    assert compile_template("${twice(4)}", functions=allowed.extended_by(twice)).render(context()) == 8


@pytest.mark.parametrize("text", ["${a.b}", "x${a.b}", "${upper(a.b)}", "${null}", "${a[9]}", "${t.b}", "${a.b.c.d}"])
def test_the_null_policy_decides_about_missing_values(text: str) -> None:
    names = {"a": {"b": None}, "t": "text"}
    prefix = "x" if text.startswith("x") else ""
    assert render(text, NullPolicy.OMIT, **names) is OMITTED
    assert render(text, NullPolicy.EMPTY, **names) == prefix
    source = text[text.index("{") + 1 : -1]
    with pytest.raises(MissingValue) as missing:
        render(text, NullPolicy.ERROR, **names)
    assert missing.value.expression == source


def test_paths_reach_members_and_elements_but_never_attributes() -> None:
    names = {"when": NOW, "word": "abc", "pair": (1, 2), "proxy": MappingProxyType({"x": 1}), "function": len}
    for text in ("${when.year}", "${word.upper}", "${word[0]}", "${function.__self__}", "${pair.count}", "${pair.0}"):
        assert render(text, **names) is OMITTED
    assert render("${pair[1]}", **names) == 2
    assert render("${proxy.x}", **names) == 1


def test_lists_and_objects_have_no_text_inside_of_another_text() -> None:
    assert render("${a}", a=[1, 2]) == [1, 2]
    with pytest.raises(
        EvaluationFailed, match="a: expected a text, a number, a boolean or an instant, got a list; use j"
    ):
        render("ids ${a}", a=[1, 2])


def test_results_are_bounded_before_they_are_built() -> None:
    big = "x" * limits.OUTPUT_LENGTH
    names = {"a": big, "b": "ß" * limits.OUTPUT_LENGTH, "l": ["", "", ""]}
    for text in ("${concat(a, a)}", "${replace(a, 'x', a)}", "${join(l, a)}"):
        with pytest.raises(
            LimitExceeded, match=r"^(concat|replace|join): expected a result of at most 1048576 characters"
        ):
            render(text, **names)
    for text in ("${a}${a}", "${upper(b)}"):
        with pytest.raises(LimitExceeded, match="expected at most 1048576 characters"):
            render(text, **names)


def test_now_is_the_same_instant_throughout_a_context() -> None:
    assert render("${now()}") == NOW
    assert render("${now()} ${now()}") == "2025-09-20T12:30:15.250Z 2025-09-20T12:30:15.250Z"
    with pytest.raises(ValueError, match="zone"):
        Context({}, now=datetime(2025, 9, 20))  # noqa: DTZ001


def test_an_extended_context_has_further_names_and_others_in_their_place() -> None:
    extended = Context({"page": {"size": 10}, "q": "old"}, now=NOW).extended({"page": 3, "r": "new"})
    assert compile_template("${page} ${q} ${r}").render(extended) == "3 old new"


@given(JSON, st.sampled_from(sorted(STANDARD_FUNCTIONS)), st.lists(JSON, max_size=3))
def test_every_function_answers_any_arguments_with_a_value_or_an_expression_error(
    first: object, name: str, others: list[object]
) -> None:
    names = [f"v{number}" for number in range(len(others) + 1)]
    arguments = [*names[:1], "'$..a'"] if name == "jsonPath" else names
    try:
        template = compile_template(f"${{{name}({', '.join(arguments)})}}")
    except InvalidTemplate as refused:
        assert "argument" in refused.expected  # noqa: PT017
        return
    try:
        template.render(context(**dict(zip(names, [first, *others], strict=True))))
    except ExpressionError as failed:
        assert "\n" not in str(failed)  # noqa: PT017


def test_one_template_serves_many_threads() -> None:
    template = compile_template("${upper(a)}-${formatDateTime(t, 'yyyyMMdd')}")
    with ThreadPoolExecutor(8) as pool:
        rendered = pool.map(lambda n: template.render(context(a=f"n{n}", t=NOW)), range(2000))
        assert list(rendered) == [f"N{n}-20250920" for n in range(2000)]

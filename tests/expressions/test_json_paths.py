"""JSONPath: the closures and the library agree, and what is no path is refused with its position."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpath_rfc9535 import JSONPathEnvironment

from platform_defs.expressions import json_paths, limits
from platform_defs.expressions.errors import EvaluationFailed, InvalidPath
from platform_defs.expressions.json_paths import compile_path

LIBRARY = JSONPathEnvironment()
PAGE = {
    "message": {
        "next-cursor": "abc",
        "total-results": 2,
        "items": [
            {"DOI": "10.1/a", "indexed": {"date-time": "2019-02-14T00:00:00Z"}, "author": [{"family": "A"}]},
            {"DOI": "10.1/b", "indexed": None, "author": [{"family": "B"}, {"family": "C"}]},
            "no object",
        ],
    }
}

NAMES = st.sampled_from(["a", "b", "date-time", "it's", 'say "x"', "é", "", "0", "*", "back\\slash", "tab\t"])
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=25,
)
STEPS = st.one_of(
    NAMES.map(lambda name: f"[{json.dumps(name)}]"),
    st.sampled_from([".a", ".b", ".é", "['a']", "[ 'b' ]", ".*", "[*]", "[ * ]"]),
    st.integers(-4, 4).map(lambda index: f"[{index}]"),
)


@st.composite
def documents_and_paths(draw: st.DrawFn) -> tuple[Any, str]:
    """A document, and a path that leads into it for a while: paths drawn without looking rarely find anything."""
    document = value = draw(DOCUMENTS)
    steps = []
    while isinstance(value, dict | list) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value))) if isinstance(value, dict) else draw(st.integers(0, len(value) - 1))
        value = value[key]
        exact = f"[{json.dumps(key)}]"
        steps.append(draw(st.sampled_from([exact, exact, "[*]", ".*"])))
    return document, "$" + "".join(steps + draw(st.lists(STEPS, max_size=2)))


@given(
    documents_and_paths() | st.tuples(DOCUMENTS, st.lists(STEPS, max_size=5).map(lambda steps: "$" + "".join(steps)))
)
def test_plain_paths_find_what_the_library_finds(drawn: tuple[Any, str]) -> None:
    document, text = drawn
    expected = LIBRARY.compile(text).find(document).values()
    path = compile_path(text)
    assert path.values(document) == expected
    assert path.first(document) == (expected[0] if expected else None)
    assert path.is_singular == LIBRARY.compile(text).singular_query()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("$", [PAGE]),
        ("$.message.next-cursor", ["abc"]),
        ("message.next-cursor", ["abc"]),
        ("$['message']['total-results']", [2]),
        ("message.items[*].DOI", ["10.1/a", "10.1/b"]),
        ("message.items[-2].DOI", ["10.1/b"]),
        ("message.items[*].indexed.date-time", ["2019-02-14T00:00:00Z"]),
        ("message.items[*].author[*].family", ["A", "B", "C"]),
        ("message.items[0].author.family", []),
        ("message.items[7]", []),
        ("message.items[0].*", ["10.1/a", {"date-time": "2019-02-14T00:00:00Z"}, [{"family": "A"}]]),
        ("message.items[0].DOI[*]", []),
        ("message.items[1].indexed", [None]),
        ("[0]", []),
        ("$..family", ["A", "B", "C"]),
        ("$..date-time", ["2019-02-14T00:00:00Z"]),
        ("message..next-cursor", ["abc"]),
        ("message.items[?@.indexed.date-time == '2019-02-14T00:00:00Z'].DOI", ["10.1/a"]),
        ("message.items[?@.DOI == '.next-cursor'].DOI", []),
        ("message.items[0:2].DOI", ["10.1/a", "10.1/b"]),
        ("message['next-cursor','total-results']", ["abc", 2]),
        ("$.message.items[?length(@.author) > 1].DOI", ["10.1/b"]),
    ],
)
def test_paths_of_presets_and_beyond(text: str, values: list[object]) -> None:
    assert compile_path(text).values(PAGE) == values
    assert compile_path(text).first(PAGE) == (values[0] if values else None)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 1, "such as $.message.items"),
        ("$.a[", 5, "unbalanced brackets"),
        ("a.next-cursor[", 15, "unbalanced brackets"),
        ("$.a b", 5, "found 'b'"),
        ("message. items", 9, "whitespace"),
        ("$['open", 4, "unclosed string"),
        ("$[01]", 3, "leading zero"),
        ("$[99999999999999999999]", 3, "out of range"),
        ("x-y.z[?nope(@.a)]", 8, "not defined"),
        ("a-b.c-d.e-f q.z-w", 13, "found 'q'"),
        ("$[?match(@.a, '(a|aa)+b')]", 4, "'match' is not defined"),
        ("$..a..b..c", 8, "at most 2 times .."),
        ("$[?" + "(" * 400 + "@" + ")" * 400 + "]", 35, "at most 32 brackets within each other"),
        ("$" + ".a" * limits.PATH_LENGTH, limits.PATH_LENGTH + 1, "at most 1024"),
    ],
)
def test_what_is_no_path_is_refused_with_its_position(text: str, position: int, expected: str) -> None:
    with pytest.raises(InvalidPath) as refused:
        compile_path(text)
    assert (refused.value.position, "\n" in str(refused.value)) == (position, False)
    assert expected in refused.value.expected


@given(st.text("$.[]'\"*ab-0?@()=, ", max_size=25) | st.text(max_size=10))
def test_any_text_is_a_path_or_refused_at_a_position_within_it(text: str) -> None:
    try:
        position = len(compile_path(text).text)
    except InvalidPath as refused:
        position = refused.position - 1
    assert 0 <= position <= len(text)


def test_a_document_deeper_than_the_library_can_follow_is_an_error_of_ours() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    path = compile_path("$..a")
    with pytest.raises(EvaluationFailed, match="less deep"):
        path.values(deep)
    with pytest.raises(EvaluationFailed, match="less deep"):
        path.first(deep)


def test_plain_paths_do_not_take_the_way_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_paths, "_ENVIRONMENT", None)
    for text in ("$", "a.b-c[0]['d e'][*].*", '$["x"]'):
        compile_path(text)
    with pytest.raises(AttributeError):
        compile_path("$..a")

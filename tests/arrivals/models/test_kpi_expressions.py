"""Expressions of computed KPIs: the ids in them, also ids with hyphens, and cycles among computed KPIs."""

import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from platform_defs.arrivals.models.kpi_expressions import InvalidExpression, find_cycles, referenced_kpis

IDS = st.from_regex(r"[AB][A1.-]{0,3}", fullmatch=True)
TIDY_IDS = st.from_regex(r"[AB]([A1]|[.-][A1]){0,3}", fullmatch=True)


def test_the_longest_known_id_wins_over_a_minus() -> None:
    assert referenced_kpis("KD-1-KD", {"KD", "KD-1"}) == ("KD-1", "KD")
    assert referenced_kpis("KD-1", {"KD"}) == ("KD",)
    assert referenced_kpis("KD-KE", {"KD", "KE", "KD-KE"}) == ("KD-KE",)
    assert referenced_kpis("KD - KE", {"KD", "KE", "KD-KE"}) == ("KD", "KE")
    assert referenced_kpis("KD1/KD10", {"KD1", "KD10"}) == ("KD1", "KD10")


def test_functions_and_words_are_no_kpis() -> None:
    known = {"A", "B", "ROUND"}
    expression = "ROUND(100.0 * A / NULLIF(COALESCE(B, 1e3), 0), 2) + CASE WHEN A > B THEN 1 ELSE ABS(B) END"
    assert referenced_kpis(expression, known) == ("A", "B")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("A / KD9999", "names the undefined KPI KD9999"),
        ("A / KC-9.x", "names the undefined KPI KC-9.x"),
        ("A.B", "names the undefined KPI A.B"),
        ("A +", "expected arithmetic"),
        ("A B", "expected arithmetic"),
        ("A, B", "expected arithmetic"),
        ("A; B", "expected arithmetic"),
        ("2A", "expected arithmetic"),
        ("(SELECT(A))", "expected arithmetic"),
        ("`A` + B", "expected arithmetic"),
        ("A + ?", "expected arithmetic"),
        ("COUNT(*) + A", "expected arithmetic"),
        ("A /* B */ * 2", "without comments"),
        ("1 + 1", "names no KPI"),
        ("SQRT(A) + B", "expected only arithmetic, comparisons, CASE, COALESCE, NULLIF, ROUND and ABS, got SQRT(A)"),
        ("B * CAST(A AS DECIMAL(9, 2))", "got CAST(A AS DECIMAL(9, 2))"),
        ("IF(A > B, 1, 2)", "got IF"),
        ("A = 'x'", "got 'x'"),
        ("A LIKE B", "got A LIKE B"),
    ],
)
def test_what_is_no_arithmetic_over_known_kpis_is_refused(expression: str, expected: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        referenced_kpis(expression, {"A", "B"})
    assert expected in str(caught.value)


@given(st.lists(IDS, min_size=1, max_size=5), st.sampled_from([" - ", " + ", "*", "/ ", " -"]))
def test_ids_between_operators_are_found_in_order(ids: list[str], operator: str) -> None:
    assert referenced_kpis(operator.join(ids), set(ids)) == tuple(dict.fromkeys(ids))


@given(st.lists(TIDY_IDS, min_size=1, max_size=4), st.sets(TIDY_IDS, max_size=6))
def test_glued_by_hyphens_the_longest_known_id_wins_at_every_place(ids: list[str], others: set[str]) -> None:
    known = {*ids, *others}
    longest_first = "|".join(re.escape(each) for each in sorted(known, key=len, reverse=True))
    pieces = re.findall(rf"(?:{longest_first})(?=-|$)|.", "-".join(ids))
    # After the longest id a rest may follow that is no id. Such expressions are refused; this test is not about them.
    assume(known.issuperset(pieces[::2]) and set(pieces[1::2]) <= {"-"})
    assert referenced_kpis("-".join(ids), known) == tuple(dict.fromkeys(pieces[::2]))


@given(st.dictionaries(st.integers(0, 8).map(str), st.sets(st.integers(0, 8).map(str), max_size=3)))
def test_a_circle_is_found_exactly_where_one_can_walk_back(depends_on: dict[str, set[str]]) -> None:
    def reaches_itself(start: str) -> bool:
        seen: set[str] = set()
        waiting = set(depends_on.get(start, ()))
        while waiting:
            seen |= waiting
            waiting = {after for each in waiting for after in depends_on.get(each, ())} - seen
        return start in seen

    found = list(find_cycles(depends_on))
    assert bool(found) == any(reaches_itself(each) for each in depends_on)
    for circle in found:
        assert circle[0] == circle[-1]
        assert all(after in depends_on[before] for before, after in pairwise(circle))
    within = [kpi_id for circle in found for kpi_id in circle[1:]]
    assert len(within) == len(set(within))

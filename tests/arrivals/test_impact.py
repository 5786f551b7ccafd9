"""The impact closure as a pure function."""

from platform_defs.arrivals.notify.impact import affected_kpis


def test_what_builds_on_a_changed_kpi_is_affected_however_indirectly() -> None:
    depends_on = {"KC1": ["KD2", "KD1"], "KC2": ["KC1"], "KC3": ["KC2", "KD9"], "KC4": ["KD9"]}
    assert affected_kpis(["KD2", "KD1"], depends_on) == ["KD1", "KD2", "KC1", "KC2", "KC3"]


def test_the_changed_ones_come_first_even_where_they_sort_last() -> None:
    assert affected_kpis(["Z9", "Z1", "Z9"], {"A1": ["Z1"]}) == ["Z1", "Z9", "A1"]


def test_a_cycle_is_walked_once() -> None:
    depends_on = {"KC1": ["KD1", "KC3"], "KC2": ["KC1"], "KC3": ["KC2", "KC3"]}
    assert affected_kpis(["KD1"], depends_on) == ["KD1", "KC1", "KC2", "KC3"]


def test_a_chain_of_thousands_does_not_exhaust_the_stack() -> None:
    depends_on = {f"K{n + 1}": [f"K{n}"] for n in range(5000)}
    assert len(affected_kpis(["K0"], depends_on)) == 5001

"""Names of ops are readable where they can be, and no two users' names become one."""

import re
from itertools import product

from assets.op_names import op_name


def test_a_name_as_people_write_it_stays_as_it_is() -> None:
    assert op_name("demo_crossref", "works", "harvest") == "demo_crossref__works__harvest"
    assert op_name("demo_daily_sales") == "demo_daily_sales"


def test_different_parts_have_different_names() -> None:
    """All short parts of what escapes look like, alone, in pairs and in threes."""
    letters = ["a", "g", "_", "-", "2", "d"]
    parts = ["".join(some) for length in (1, 2, 3) for some in product(letters, repeat=length)]
    parts += ["a_2d_b", "a-b", "a_2d", "2d_b", "a--b", "a_5f_b", "a__b", "2d", "5f", "gg_2d_gg", "gg-gg", "ä", "e4"]
    few = [*parts[:20], *parts[-13:]]
    names = [(one,) for one in parts] + list(product(parts, repeat=2)) + list(product(few, repeat=3))
    known = {op_name(*some) for some in set(names)}
    assert len(known) == len(set(names))
    assert all(re.fullmatch("[A-Za-z0-9_]+", name) for name in known)

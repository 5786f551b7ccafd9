"""Canonical JSON is one text for one value, whichever of the two encoders writes it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from platform_defs.canonical import canonical_json, sorted_json

# hypothesis draws no lone surrogates here: no store can hold them, and events that have them are refused
texts = st.text(st.characters(exclude_categories=["Cs"]))
plain_values = st.one_of(st.none(), st.booleans(), st.integers(), texts)
values = st.recursive(plain_values, lambda inner: st.one_of(st.lists(inner), st.dictionaries(texts, inner)))


@given(values)
def test_a_value_without_fractions_has_the_same_text_from_the_fast_encoder(value: Any) -> None:
    assert sorted_json(value) == canonical_json(value).encode()


def test_control_signs_keys_beyond_the_first_plane_and_huge_integers_are_written_alike() -> None:
    value = {"\U0001f600": 1, "\uffff": 2, "a": "".join(map(chr, range(0x80))), "n": [2**63 - 1, 2**64, -(2**70)]}
    assert sorted_json(value) == canonical_json(value).encode()

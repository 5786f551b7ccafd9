"""Strict JSON under any bytes at all."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from platform_defs.api.http.bodies import parse_json
from platform_defs.api.http.errors import ApiError


@given(body=st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_bytes_are_parsed_or_refused_and_nothing_else(body: bytes) -> None:
    with contextlib.suppress(ApiError):
        parse_json(body)

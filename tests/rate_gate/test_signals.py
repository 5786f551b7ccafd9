"""Headers of real sources in all their spellings, and headers that no source should send."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.rate_gate.signals import Limits, Outcome, outcome_of, read_limits

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
EPOCH = int(NOON.timestamp())


def limits(status: int = 200, **headers: str) -> Limits:
    return read_limits(status, {name.replace("_", "-"): value for name, value in headers.items()}, now=NOON)


def test_crossref_names_a_limit_per_interval_and_its_concurrency() -> None:
    found = limits(**{"x-rate-limit-limit": "50", "x-rate-limit-interval": "1s", "x-concurrency-limit": "3"})
    assert found == Limits(limit=50, interval_s=1.0, concurrency=3)
    assert limits(x_ratelimit_limit="50", x_ratelimit_interval="1s") == Limits(limit=50, interval_s=1.0)


def test_ncbi_names_a_limit_and_what_is_left() -> None:
    assert limits(X_RateLimit_Limit="3", X_RateLimit_Remaining="2") == Limits(limit=3, remaining=2)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        (str(EPOCH + 90), 90.0),
        (str((EPOCH + 90) * 1000), 90.0),
        ("Fri, 15 Jan 2027 12:01:30 GMT", 90.0),
        (str(EPOCH - 5), 0.0),
        ("soon", None),
    ],
)
def test_a_reset_is_a_duration_an_instant_or_a_date(text: str, seconds: float | None) -> None:
    assert limits(X_Rate_Limit_Reset=text).reset_s == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("Fri, 15 Jan 2027 12:02:00 GMT", 120.0),
        ("Fri, 15 Jan 2027 11:00:00 GMT", 0.0),
        ("tomorrow", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert limits(429, Retry_After=text).retry_after_s == seconds


def test_a_date_counts_from_the_source_s_own_clock() -> None:
    headers = {"Retry_After": "Fri, 15 Jan 2027 09:00:30 GMT", "Date": "Fri, 15 Jan 2027 09:00:00 GMT"}
    assert limits(503, **headers).retry_after_s == 30


def test_a_retry_after_of_a_success_is_no_pause() -> None:
    assert limits(202, Retry_After="30").retry_after_s is None


def test_a_window_in_the_limit_itself_is_its_interval() -> None:
    assert limits(RateLimit_Limit="100, 100;w=60") == Limits(limit=100, interval_s=60.0)


@given(st.dictionaries(st.sampled_from(["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Reset", "Date"]), st.text()))
def test_no_header_breaks_the_reader(headers: dict[str, str]) -> None:
    read_limits(429, headers, now=NOON)


def test_statuses_mean_what_the_gate_makes_of_them() -> None:
    assert [outcome_of(status) for status in (200, 304, 404, 429, 500, 503, None)] == [
        Outcome.OK,
        Outcome.OK,
        Outcome.OTHER,
        Outcome.RATE_LIMITED,
        Outcome.TRANSIENT,
        Outcome.TRANSIENT,
        Outcome.NO_ANSWER,
    ]

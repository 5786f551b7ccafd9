"""Event times: the spellings that real producers use, and times that are refused."""

from datetime import UTC, datetime

import pytest

from platform_defs.lineage.event_times import parse_time

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2024-05-01T12:00:00Z", NOON),
        ("2024-05-01T12:00:00z", NOON),
        (" 2024-05-01T12:00:00Z ", NOON),
        ("2024-05-01 12:00:00 UTC", NOON),
        ("2024-05-01T12:00:00", NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        ("2024-05-01T14:00:00+0200", NOON),
        ("2024-05-01", NOON.replace(hour=0)),
        ("2024-05-01T12:00:00.5Z", NOON.replace(microsecond=500_000)),
        ("2024-05-01T12:00:00.123456789Z", NOON.replace(microsecond=123_456)),
        ("2024-05-01T13:00:00.000001+01:00[Europe/London]", NOON.replace(microsecond=1)),
        ("2024-05-01T12:00:00Z[UTC]", NOON),
        ("2024-05-01T14:00:00[Europe/Paris]", NOON),
        (1714564800, NOON),
        (1714564800.687894, NOON.replace(microsecond=687_894)),
        (1714564800_123, NOON.replace(microsecond=123_000)),
        (1714564800_123456, NOON.replace(microsecond=123_456)),
        (1714564800_123456789, NOON.replace(microsecond=123_456)),
        ("1714564800.5", NOON.replace(microsecond=500_000)),
        ("1714564800123", NOON.replace(microsecond=123_000)),
        (-1714564800, datetime(1915, 9, 2, 12, 0, tzinfo=UTC)),
        ("20240501", NOON.replace(hour=0)),
        ("20240501120000", NOON),
        (20240501120000, NOON),
    ],
)
def test_a_time_is_read_as_it_was_meant(written: object, meant: datetime) -> None:
    assert parse_time(written) == meant
    assert parse_time(written).tzinfo is UTC


@pytest.mark.parametrize(
    "written",
    [
        "",
        "yesterday",
        "2024-13-01T00:00:00Z",
        "2024-05-01T25:00:00Z",
        "2024-05-01T12:00:00[Mars/Base]",
        "2024-05-01T12:00:00Z[../../etc/passwd]",
        "2024-05-01T12:00:00Z[",
        "0999-12-31T00:00:00Z",
        "9999-12-31T23:59:59-05:00",
        "20241301120000",
        "-20240501120000",
        "202405011200",
        "20240501120000123",
        "171456480",
        "99999999999999999999",
        "9" * 5000,
        20240501,
        -1,
        10**40,
        float("nan"),
        float("inf"),
        True,
        None,
        ["2024-05-01"],
    ],
)
def test_what_is_no_time_is_refused_with_a_reason(written: object) -> None:
    with pytest.raises(ValueError, match=r"^expected a time"):
        parse_time(written)

"""Times of sources: every form that the recorded responses contain is read, and what is no time says so."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.expressions.date_patterns import compile_pattern
from platform_defs.expressions.errors import InvalidField, InvalidPattern, UnreadableTime
from platform_defs.expressions.instants import compile_instants, read_instant
from platform_defs.expressions.values import instant_text
from tests.expressions.values import INSTANTS, JSON
from tests.needs import require


def utc(*numbers: int) -> datetime:
    return datetime(*numbers, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("value", "instant"),
    [
        ("2003-05-07T12:30:00Z", utc(2003, 5, 7, 12, 30)),
        ("2003-05-07t12:30:00z", utc(2003, 5, 7, 12, 30)),
        ("2003-05-07 12:30:00.5 UTC", utc(2003, 5, 7, 12, 30, 0, 500_000)),
        ("2003-05-07T12:30:00.123456789+02:00", utc(2003, 5, 7, 10, 30, 0, 123_456)),
        ("2003-05-07T12:30-0130", utc(2003, 5, 7, 14)),
        ("2003-05-07T12:30:00", utc(2003, 5, 7, 12, 30)),
        # a leap second stays in its own day
        ("2016-12-31T23:59:60Z", utc(2016, 12, 31, 23, 59, 59, 999_999)),
        ("2017-01-01T08:59:60.250+09:00", utc(2016, 12, 31, 23, 59, 59, 999_999)),
        (" 2003-05-07 ", utc(2003, 5, 7)),
        ("2003-05", utc(2003, 5, 1)),
        ("2003", utc(2003, 1, 1)),
        ("20030507", utc(2003, 5, 7)),
        ("20030507123000", utc(2003, 5, 7, 12, 30)),
        ("2003/05/07", utc(2003, 5, 7)),
        ("2003/5/7", utc(2003, 5, 7)),
        ("2003/05/07 12:30", utc(2003, 5, 7, 12, 30)),
        ("2003/05/07 12:30:59", utc(2003, 5, 7, 12, 30, 59)),
        ("2003 May 7", utc(2003, 5, 7)),
        ("2003 Sep 07", utc(2003, 9, 7)),
        ("2003 september", utc(2003, 9, 1)),
        ("2003 May", utc(2003, 5, 1)),
        ([[2003]], utc(2003, 1, 1)),
        ([[2003, 5]], utc(2003, 5, 1)),
        ([[2003, 5, 7]], utc(2003, 5, 7)),
        ([2003, 5, 7], utc(2003, 5, 7)),
        ([["2003", "5"]], utc(2003, 5, 1)),
        ([[2003, 5, 7], [2004]], utc(2003, 5, 7)),
        (1550178129, utc(2019, 2, 14, 21, 2, 9)),
        (1550178129.5, utc(2019, 2, 14, 21, 2, 9, 500_000)),
        (1550178129412, utc(2019, 2, 14, 21, 2, 9, 412_000)),
        ("1550178129412", utc(2019, 2, 14, 21, 2, 9, 412_000)),
        (786240000000, utc(1994, 12, 1)),
        (31536000000, utc(1971, 1, 1)),
        (-2177452800000, utc(1901, 1, 1)),
        (-7948800000, utc(1969, 10, 1)),
        (-1000000000, utc(1938, 4, 24, 22, 13, 20)),
        (datetime(2003, 5, 7, 12, tzinfo=ZoneInfo("Europe/Berlin")), utc(2003, 5, 7, 10)),
    ],
)
def test_forms_that_sources_send(value: object, instant: datetime) -> None:
    assert read_instant(value) == instant
    assert read_instant(value).tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        None, True, "", "soon", "2003-13-01", "2003-02-29", "2003 Mai 7", "2003 Winter", "2003 Jan-Feb", "05/07/2003",
        2003, 0, -5, 20030507, 1550178129412000, float("nan"), float("inf"), 1e300, pytest.param(10**5000, id="huge"),
        "200305071230", "2003-05-07T25:00:00Z", "0999-12-31", "9999-12-31T23:59:59-10:00", "1e999999999", "٢٠٠٣",
        [[None]], [[]], [], [[2003, 0]], [[2003, 5, 7, 1]], [[2003.5]], [[True]], {"date-parts": [[2003]]},
        pytest.param("2" * 100_000, id="long"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_the_value_and_what_was_expected(value: object) -> None:
    with pytest.raises(UnreadableTime, match=r"^expected a time such as") as refused:
        read_instant(value)
    assert refused.value.value is value
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@given(JSON | st.text("0123456789-/: TZ.+", max_size=30) | st.integers() | st.floats())
def test_anything_is_a_time_or_unreadable(value: object) -> None:
    try:
        instant = read_instant(value)
    except UnreadableTime:
        return
    assert instant.tzinfo is UTC
    assert 1000 <= instant.year <= 9999


@given(INSTANTS)
def test_an_instant_survives_every_text_and_number_that_can_hold_it(instant: datetime) -> None:
    assert read_instant(instant_text(instant)) == instant
    assert read_instant(instant.isoformat()) == instant
    assert read_instant(instant.astimezone(ZoneInfo("Asia/Kathmandu")).isoformat()) == instant
    second = instant.replace(microsecond=0)
    assert read_instant(f"{second:%Y/%m/%d %H:%M:%S}".rjust(19, "0")) == second
    day = second.replace(hour=0, minute=0, second=0)
    assert read_instant([[day.year, day.month, day.day]]) == day
    millis = (instant - utc(1970, 1, 1)) // timedelta(milliseconds=1)
    assert compile_instants(["EPOCH_MILLIS"]).read(millis) == utc(1970, 1, 1) + timedelta(milliseconds=millis)
    if abs(millis) >= 10**10:
        assert read_instant(millis) == utc(1970, 1, 1) + timedelta(milliseconds=millis)


def test_configured_formats_are_tried_in_order_and_nothing_else_is() -> None:
    reader = compile_instants(["dd/MM/yyyy", "EPOCH_SECONDS", "yyyyMMddHHmm"])
    assert reader.read("07/05/2003") == utc(2003, 5, 7)
    assert reader.read("86400") == reader.read(86400) == utc(1970, 1, 2)
    with pytest.raises(
        UnreadableTime, match="expected a time as dd/MM/yyyy, EPOCH_SECONDS, yyyyMMddHHmm, got '2003-05-07'"
    ):
        reader.read("2003-05-07")
    for number in ("1e999999", "1e99999999999999999999", 1e300, "nan", True):
        with pytest.raises(UnreadableTime):
            reader.read(number)
    assert compile_instants(["yyyyMMddHHmm", "AUTO"]).read("200305071230") == utc(2003, 5, 7, 12, 30)
    assert compile_instants(["DATE_PARTS"]).read([[2003]]) == utc(2003, 1, 1)
    assert compile_instants(["ISO"]).read("2003-05-07") == utc(2003, 5, 7)
    with pytest.raises(InvalidPattern):
        compile_instants(["yyyy-QQ"])
    with pytest.raises(InvalidField, match="at least one format"):
        compile_instants([])


def test_a_zone_is_for_times_without_one() -> None:
    berlin = compile_instants(zone="Europe/Berlin")
    assert berlin.read("2003-07-01 12:00:00") == utc(2003, 7, 1, 10)
    assert berlin.read("2003-01-01 12:00:00") == utc(2003, 1, 1, 11)
    assert berlin.read([[2003]]) == utc(2002, 12, 31, 23)
    assert berlin.read("2003-07-01T12:00:00Z") == utc(2003, 7, 1, 12)
    assert berlin.read(1550178129) == utc(2019, 2, 14, 21, 2, 9)
    with pytest.raises(InvalidField, match="Mars/Base"):
        compile_instants(zone="Mars/Base")


@given(
    INSTANTS, st.sampled_from(["yyyy-MM-dd'T'HH:mm:ss.SSSSSSX", "yyyyMMddHHmmssSSSSSSSSS", "d MMMM yyyy H:m:s,SSSSSS"])
)
def test_a_pattern_reads_what_it_writes(instant: datetime, pattern: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.parse(compiled.format(instant), UTC) == instant


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss'Z'", "2003-05-07T09:08:01Z"),
        ("yy/M/d H:m:s", "03/5/7 9:8:1"),
        ("d MMM yyyy", "7 May 2003"),
        ("MMMM 'o''clock' %d ''", "May o'clock %7 '"),
        ("SSS S SSSSSSSSS", "045 0 045678000"),
        ("X XXX", "Z Z"),
        ("yyyy年M月d日éé", "2003年5月7日éé"),
        ("ISO", "2003-05-07T09:08:01.045678Z"),
        ("ISO_DATE", "2003-05-07"),
    ],
)
def test_patterns_write_javas_letters_in_utc(pattern: str, text: str) -> None:
    instant = datetime(2003, 5, 7, 11, 8, 1, 45_678, tzinfo=ZoneInfo("Europe/Berlin"))
    assert compile_pattern(pattern).format(instant) == text


@pytest.mark.parametrize(
    ("pattern", "position", "expected"),
    [
        ("YYYY-MM-dd", 1, "y (Y is the year of the week)"),
        ("yyyy-MM-DD", 9, "d (D is the day of the year)"),
        ("hh:mm", 1, "H instead of h"),
        ("yyyyTHH", 5, "one of the letters"),
        ("yyyy-MMMMM", 6, "M repeated 1, 2, 3, 4 times"),
        ("yyyy'T", 5, "a closing '"),
        ("[yyyy]", 1, "in quotes"),
        ("y" * 200, 129, "at most 128 characters"),
    ],
)
def test_wrong_patterns_are_refused_with_their_position(pattern: str, position: int, expected: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        compile_pattern(pattern)
    assert refused.value.position == position
    assert expected in refused.value.expected


@given(st.text("yMdHmsSX'-: T%QY[", max_size=12), INSTANTS)
def test_any_pattern_writes_a_text_or_is_refused(pattern: str, instant: datetime) -> None:
    try:
        compiled = compile_pattern(pattern)
    except InvalidPattern:
        return
    assert isinstance(compiled.format(instant), str)


@pytest.mark.needs("data")
def test_the_times_of_recorded_responses_are_read_and_agree_with_each_other() -> None:
    read = 0
    for item in _objects(Path(require("data")) / "responses"):
        if isinstance(item.get("timestamp"), int) and isinstance(item.get("date-time"), str):
            exact = read_instant(item["date-time"])
            assert abs(read_instant(item["timestamp"]) - exact) < timedelta(seconds=1), item
            assert read_instant(item["date-parts"]) == exact.replace(hour=0, minute=0, second=0, microsecond=0), item
            read += 1
        for name in ("pubdate", "sortdate", "pmclivedate", "firstIndexDate", "updated_date"):
            if item.get(name):
                read_instant(item[name])
                read += 1
    assert read > 5000


def _objects(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*/*.json")):
        try:
            waiting = [json.loads(file.read_bytes())]
        except ValueError:
            continue
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                yield value
                waiting += value.values()
            elif isinstance(value, list):
                waiting += value

"""The pure functions: parsing of arrivals, opTimes, readiness and further attempts."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.arrivals.errors import InvalidArrival
from platform_defs.arrivals.intake import Arrival, parse_arrival
from platform_defs.arrivals.op_time import (
    batch_of,
    dependencies_satisfied_by,
    normalise_op_time,
    render_table_name,
    satisfying_names,
    spellings,
)
from platform_defs.arrivals.readiness import (
    Standing,
    Verdict,
    judge,
    missing_tables,
    next_version,
)

NOW = datetime(2025, 12, 19, 8, tzinfo=UTC)
OP = "20251219"
OP_TIMES = st.text("0123456789", min_size=4, max_size=14)
NAMES = st.lists(st.sampled_from(["DW_", "yyyymmdd", "yyyymm", "yyyy", "2025", "12", "_", "D", "20"]), max_size=6)


def standing(**changes: object) -> Standing:
    values: dict[str, object] = {
        "model_id": "M",
        "op_time": OP,
        "published": True,
        "depends_on": ("A", "B_yyyymmdd"),
        "arrived": {("A", OP): NOW, ("B_20251219", OP): NOW},
        "read": {},
    }
    return Standing(**(values | changes))  # type: ignore[arg-type]


def test_a_model_that_never_ran_is_due_when_all_tables_arrived() -> None:
    assert judge(standing()) is Verdict.DUE


def test_a_missing_table_keeps_a_model_waiting() -> None:
    waiting = standing(arrived={("A", OP): NOW})
    assert judge(waiting) is Verdict.WAITING
    assert missing_tables(waiting) == ["B_yyyymmdd"]


def test_an_unpublished_model_is_not_asked_further() -> None:
    assert judge(standing(published=False, arrived={})) is Verdict.UNPUBLISHED


def test_what_was_read_is_not_due_again() -> None:
    assert judge(standing(read={("A", OP): NOW, ("B_20251219", OP): NOW})) is Verdict.CURRENT


@pytest.mark.parametrize("moved", [timedelta(microseconds=1), timedelta(hours=-9)])
def test_a_version_that_differs_in_either_direction_is_due(moved: timedelta) -> None:
    assert judge(standing(read={("A", OP): NOW + moved, ("B_20251219", OP): NOW})) is Verdict.DUE


def test_a_placeholder_is_met_by_its_literal_name_too() -> None:
    literally = standing(arrived={("A", OP): NOW, ("B_yyyymmdd", OP): NOW})
    assert missing_tables(literally) == []


@given(op_time=OP_TIMES, parts=NAMES)
def test_a_rendered_name_leads_back_to_every_dependency_that_renders_to_it(op_time: str, parts: list[str]) -> None:
    dependency = "".join(parts)
    assert dependency in dependencies_satisfied_by(render_table_name(dependency, op_time), op_time)
    assert dependency in dependencies_satisfied_by(dependency, op_time)


@given(op_time=OP_TIMES, parts=NAMES)
def test_only_names_that_render_to_the_table_are_met_by_it(op_time: str, parts: list[str]) -> None:
    table = "".join(parts)
    for dependency in dependencies_satisfied_by(table, op_time):
        assert table in satisfying_names(dependency, op_time)


@given(op_time=OP_TIMES)
def test_dashes_change_nothing_about_a_batch(op_time: str) -> None:
    dashed = "-".join([op_time[:4], op_time[4:6], op_time[6:]])
    assert normalise_op_time(dashed) == normalise_op_time(op_time) == op_time


@given(op_time=OP_TIMES)
def test_every_spelling_of_a_batch_leads_back_to_it(op_time: str) -> None:
    found = spellings(op_time)
    assert found[0] == op_time
    assert {batch_of(written) for written in found} == {op_time}
    assert {normalise_op_time(written) for written in found} == {op_time}


def test_a_table_that_arrived_by_the_dashed_spelling_is_not_missing() -> None:
    arrived = {("A", "2025-12-19"): NOW, ("B_20251219", OP): NOW}
    assert judge(standing(arrived=arrived)) is Verdict.DUE
    assert judge(standing(arrived=arrived, read=arrived)) is Verdict.CURRENT
    assert judge(standing(arrived=arrived | {("A", OP): NOW}, read=arrived)) is Verdict.DUE


@pytest.mark.parametrize("wrong", ["", "123", "1" * 15, "2025121a", "２０２５", "2025 12", "--", "20251219\n1"])
def test_what_is_no_batch_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(InvalidArrival, match="opTime"):
        normalise_op_time(wrong)


def test_a_body_is_trimmed_and_normalised() -> None:
    assert parse_arrival({"srcTableName": "  T ", "opTime": "2025-12-19", "more": 1}) == Arrival("T", "20251219")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "body"),
        ({"opTime": "20251219"}, "srcTableName"),
        ({"srcTableName": " ", "opTime": "20251219"}, "srcTableName"),
        ({"srcTableName": "x" * 256, "opTime": "20251219"}, "srcTableName"),
        ({"srcTableName": "a\x00b", "opTime": "20251219"}, "srcTableName"),
        ({"srcTableName": "a\ud800", "opTime": "20251219"}, "srcTableName"),
        ({"srcTableName": 7, "opTime": "20251219"}, "srcTableName"),
        ({"srcTableName": "T"}, "opTime"),
        ({"srcTableName": "T", "opTime": 20251219}, "opTime"),
        ({"srcTableName": "T", "opTime": None}, "opTime"),
    ],
)
def test_a_refused_body_names_the_field(body: object, field: str) -> None:
    with pytest.raises(InvalidArrival) as refused:
        parse_arrival(body)
    assert refused.value.field == field


@given(now=st.datetimes(timezones=st.just(UTC)))
def test_every_arrival_is_a_version_of_its_own(now: datetime) -> None:
    assert next_version(now, taken=True) != now
    assert next_version(now, taken=False) == now

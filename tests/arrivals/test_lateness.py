"""Lateness: when a batch is due, which batches are expected, and which tables of them have not arrived."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import Engine, event, text, update

from platform_defs.api.arrivals.metrics import ArrivalsCollector
from platform_defs.arrivals import lateness
from platform_defs.arrivals.checks import CheckRotation
from platform_defs.arrivals.lateness import LateBatch, WatchedModel, expected_batches
from platform_defs.arrivals.models.due import Due, batch_day, last_due_batch
from platform_defs.settings import Settings
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_model
from tests.arrivals.world import add_model, add_models, write_arrival

BERLIN, SHANGHAI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai")
LOOKBACK = timedelta(days=7)
# a Friday, 09:00 in Shanghai
NOW = datetime(2025, 12, 19, 1, 0, tzinfo=UTC)
LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC)


def due(text: str) -> Due:
    found = Due.parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "op_time", "zone", "instant"),
    [
        ("08:30", "20251219", SHANGHAI, "2025-12-19T00:30:00+00:00"),
        ("08:30", "2025-12-19", SHANGHAI, "2025-12-19T00:30:00+00:00"),
        ("+1 00:00", "2025121923", BERLIN, "2025-12-19T23:00:00+00:00"),
        ("08:30", "20250719", BERLIN, "2025-07-19T06:30:00+00:00"),
        ("+4 06:00", "202512", BERLIN, "2025-12-05T05:00:00+00:00"),
        ("+9 06:00", "2025", BERLIN, "2025-01-10T05:00:00+00:00"),
        ("08:30", "20251340", BERLIN, None),
        ("+1 08:30", "99991231", BERLIN, None),
    ],
)
def test_a_batch_is_due_on_its_day_in_the_zone_of_the_deployment(
    text: str, op_time: str, zone: ZoneInfo, instant: str | None
) -> None:
    found = due(text).instant(op_time, zone)
    assert (found and found.isoformat()) == instant


@pytest.mark.parametrize("text", ["8:30", "24:00", "08:60", "+ 08:30", "1 08:30", "08:30 "])
def test_what_is_no_time_is_not_due(text: str) -> None:
    assert Due.parse(text) is None


def test_the_day_of_a_month_or_year_is_its_first() -> None:
    assert batch_day("202512") == date(2025, 12, 1)
    assert batch_day("2025") == date(2025, 1, 1)


@pytest.mark.parametrize(
    ("text", "digits", "batch"),
    [
        ("08:30", 8, "20251219"),
        ("09:30", 8, "20251218"),
        ("+1 08:30", 8, "20251218"),
        ("+1 09:30", 8, "20251217"),
        ("+18 09:00", 6, "202512"),
        ("+18 09:30", 6, "202511"),
        ("+20 09:00", 6, "202511"),
        ("08:30", 4, "2025"),
        ("08:30", 10, None),
    ],
)
def test_the_batch_that_fell_due_last_follows_from_the_calendar(text: str, digits: int, batch: str | None) -> None:
    assert last_due_batch(due(text), digits, SHANGHAI, NOW) == batch


def test_a_batch_that_has_begun_is_expected_until_the_lookback_ends_and_not_from_before_it_was_published() -> None:
    begun = frozenset({"20251215", "20251216", "20251220", "20250101", "0"})
    model = WatchedModel("M", due("08:30"), LONG_AGO, begun=begun)
    assert sorted(expected_batches(model, SHANGHAI, NOW, LOOKBACK)) == ["20251215", "20251216", "20251219"]
    since_yesterday = WatchedModel("M", due("08:30"), NOW - timedelta(days=1), begun=begun)
    assert sorted(expected_batches(since_yesterday, SHANGHAI, NOW, LOOKBACK)) == ["20251219"]


def _declare(engine: Engine, model_id: str, text: str | None) -> None:
    mine = metrics_model.c.model_id == model_id
    statement = update(metrics_model).where(mine).values(due=text, published_at=LONG_AGO)
    transact(engine, lambda connection: connection.execute(statement))


def _look(engine: Engine, now: datetime = NOW) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    found = read(engine, lambda connection: lateness.find_late_batches(connection, SHANGHAI, now, LOOKBACK))
    return {model_id: [(item.op_time, item.tables) for item in late] for model_id, late in found.items()}


def test_what_has_not_arrived_by_then_is_late_until_it_arrives(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B_yyyymmdd"])
    add_model(engine, "PATIENT", ["A"])
    add_model(engine, "UNPUBLISHED", ["A"], published=False)
    _declare(engine, "M", "08:30")
    _declare(engine, "UNPUBLISHED", "08:30")
    assert _look(engine) == {"M": [("20251219", ("A", "B_yyyymmdd"))]}
    write_arrival(engine, "A", "20251219", NOW - timedelta(hours=1))
    assert _look(engine) == {"M": [("20251219", ("B_yyyymmdd",))]}
    write_arrival(engine, "B_20251219", "20251219", NOW)
    assert _look(engine) == {"M": []}
    # A day later the next batch is late; the tables of this one still count as arrived.
    assert _look(engine, NOW + timedelta(days=1)) == {"M": [("20251220", ("A", "B_yyyymmdd"))]}


def test_batches_with_and_without_dashes_are_the_same_ones(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B_yyyymmdd", "C"])
    _declare(engine, "M", "08:30")
    write_arrival(engine, "A", "2025-12-18", NOW - timedelta(days=1))
    write_arrival(engine, "B_20251218", "2025-12-18", NOW - timedelta(days=1))
    write_arrival(engine, "C", "20251219", NOW)
    assert _look(engine) == {"M": [("20251218", ("C",)), ("20251219", ("A", "B_yyyymmdd"))]}
    write_arrival(engine, "C", "20251218", NOW)
    write_arrival(engine, "A", "2025-12-19", NOW)
    write_arrival(engine, "B_20251219", "2025-12-19", NOW - timedelta(days=8))
    assert _look(engine) == {"M": []}


def test_monthly_tables_with_dashes_are_not_expected_every_day(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    _declare(engine, "M", "+17 08:30")
    write_arrival(engine, "A", "2025-11", NOW - timedelta(days=20))
    assert _look(engine) == {"M": [("202512", ("A",))]}


def test_a_day_is_late_until_the_next_one_is_due_and_longer_if_it_began(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B"])
    _declare(engine, "M", "08:30")
    write_arrival(engine, "A", "20251218", NOW - timedelta(days=1))
    assert _look(engine, NOW - timedelta(minutes=40)) == {"M": [("20251218", ("B",))]}
    assert _look(engine) == {"M": [("20251218", ("B",)), ("20251219", ("A", "B"))]}


def test_monthly_tables_are_not_expected_every_day(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    _declare(engine, "M", "+17 08:30")
    # The newest arrival tells whether batches are days or months, however long ago it was.
    write_arrival(engine, "A", "20251010", NOW - timedelta(days=70))
    write_arrival(engine, "A", "202511", NOW - timedelta(days=20))
    assert _look(engine) == {"M": [("202512", ("A",))]}
    write_arrival(engine, "A", "202512", NOW - timedelta(days=15))
    assert _look(engine) == {"M": []}


def test_a_batch_is_looked_at_closely_only_while_something_of_it_may_be_missing(engine: Engine) -> None:
    add_models(engine, {f"M{number}": ["A", "B_yyyymmdd"] for number in range(3)})
    for number in range(3):
        _declare(engine, f"M{number}", "08:30")
    for day in (17, 18, 19):
        write_arrival(engine, "A", f"202512{day}", NOW - timedelta(hours=1))
        write_arrival(engine, f"B_202512{day}", f"202512{day}", NOW - timedelta(hours=1))
    queries: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        queries.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        assert _look(engine) == {"M0": [], "M1": [], "M2": []}
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert len([query for query in queries if query.startswith("SELECT")]) == 3


def test_a_table_that_arrived_before_the_lookback_is_not_late(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B"])
    _declare(engine, "M", "08:30")
    write_arrival(engine, "A", "20251219", NOW - timedelta(days=30))
    write_arrival(engine, "B", "20251219", NOW)
    assert _look(engine) == {"M": []}


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_table_whose_time_cannot_be_read_is_late(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    _declare(engine, "M", "08:30")
    write_arrival(engine, "A", "20251219", NOW)
    garble = text("UPDATE metrics_etl_log SET arrival_time = '2025/12/19 08:00'")
    transact(engine, lambda connection: connection.execute(garble))
    assert _look(engine) == {"M": [("20251219", ("A",))]}


def test_of_many_models_those_whose_lateness_changed_are_shown_at_once_and_the_others_in_turns() -> None:
    late = LateBatch("m4", "20251219", NOW, ("A",))
    turns: CheckRotation[LateBatch] = CheckRotation(at_once=2)
    on_time: dict[str, tuple[LateBatch, ...]] = {f"m{number}": () for number in range(5)}
    assert [list(turns.choose(on_time)) for _ in range(4)] == [["m0", "m1"], ["m2", "m3"], ["m4"], ["m0", "m1"]]
    one_late = on_time | {"m4": (late,)}
    assert turns.choose(one_late) == {"m2": (), "m3": (), "m4": (late,)}
    # note_shown was not called, so m4 still counts as changed.
    turns.choose(one_late)
    assert list(turns.choose(one_late)) == ["m0", "m1", "m4"]
    turns.note_shown(one_late)
    assert list(turns.choose(one_late)) == ["m2", "m3"]
    turns.choose(one_late)
    assert list(turns.choose(on_time)) == ["m0", "m1", "m4"]


def test_the_metric_counts_the_late_tables_of_each_model_that_declares_a_time(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B"])
    add_model(engine, "N", ["A"])
    add_model(engine, "PATIENT", ["A"])
    _declare(engine, "M", "00:00")
    _declare(engine, "N", "00:00")
    write_arrival(engine, "A", f"{datetime.now(UTC):%Y%m%d}")
    registry = CollectorRegistry()
    registry.register(ArrivalsCollector(engine, Settings.load()))
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'platform_arrivals_late_tables{model="M"} 1.0',
        'platform_arrivals_late_tables{model="N"} 0.0',
    ]

"""Column types mean the same on every store: bytes, instants, JSON, wide numbers, and text the driver leaves alone."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, func, insert, select
from sqlalchemy.exc import IntegrityError, StatementError

from platform_defs.canonical import sha256_hex
from platform_defs.store.exact_numbers import decimal_text, exact_number
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_kpi_value
from platform_defs.store.tables.ingest import ing_record, ing_schedule_instance
from platform_defs.store.tables.ingest_cursors import ing_cursor

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
LOOKALIKES = [
    "orders",
    "Orders",
    "ORDERS",
    "órders",
    "o\u0301rders",
    "orders ",
    " orders",
    "orders\t",
    "ordersß",
    "订单",
]
per_store = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def record(provider_id: str, value: Any, at: datetime = NOON) -> dict[str, Any]:
    return {
        "provenance_code": "p",
        "endpoint_name": "e",
        "provider_id": provider_id,
        "updated_at": at,
        "record": value,
    }


def test_names_that_differ_in_case_accent_or_trailing_space_are_different_keys(engine: Engine) -> None:
    with engine.begin() as connection:
        for name in LOOKALIKES:
            connection.execute(insert(metrics_etl_log).values(table_name=name, op_time="1", arrival_time=NOON))
        for name in LOOKALIKES:
            found = select(metrics_etl_log.c.table_name).where(metrics_etl_log.c.table_name == name)
            assert connection.execute(found).scalars().all() == [name]


def test_the_same_name_twice_is_refused(engine: Engine) -> None:
    row = {"table_name": "orders", "op_time": "1", "arrival_time": NOON}
    with engine.begin() as connection:
        connection.execute(insert(metrics_etl_log).values(row))
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(insert(metrics_etl_log).values(row))


def test_text_sorts_by_its_bytes(engine: Engine) -> None:
    with engine.begin() as connection:
        rows = [{"table_name": name, "op_time": "1", "arrival_time": NOON} for name in LOOKALIKES]
        connection.execute(insert(metrics_etl_log), rows)
        ordered = select(metrics_etl_log.c.table_name).order_by(metrics_etl_log.c.table_name)
        assert connection.execute(ordered).scalars().all() == sorted(LOOKALIKES, key=str.encode)


@pytest.mark.parametrize(
    "text",
    [
        "a delimiter ; it's",
        "DELIMITER $$ it's $$ SELECT 1",
        "it's -- no comment",
        "100 %s %(x)s %% \\' \" ` ;",
        "\\",
        "😀",
    ],
)
def test_text_comes_back_as_it_was_written(engine: Engine, text: str) -> None:
    with engine.begin() as connection:
        connection.execute(insert(ing_record).values(record(text, {"text": text})))
        found = connection.execute(select(ing_record.c.provider_id, ing_record.c.record)).one()
    assert found == (text, {"text": text})


@pytest.mark.parametrize(
    "engine", [pytest.param(store, marks=pytest.mark.needs(store)) for store in ("mysql", "mariadb")], indirect=True
)
def test_a_text_too_long_for_its_column_is_refused_where_the_server_measures(engine: Engine) -> None:
    with pytest.raises(StatementError, match="too long"), engine.begin() as connection:
        connection.execute(insert(metrics_etl_log).values(table_name="x" * 256, op_time="1", arrival_time=NOON))


def test_instants_keep_microseconds_and_order(engine: Engine) -> None:
    instants = [NOON + timedelta(microseconds=n) for n in (0, 1, 499_999, 500_000, 999_999)]
    with engine.begin() as connection:
        rows = [record(str(n), {}, at) for n, at in enumerate(reversed(instants))]
        connection.execute(insert(ing_record), rows)
        ordered = connection.execute(select(ing_record.c.updated_at).order_by(ing_record.c.updated_at)).scalars().all()
        later = select(func.count()).where(ing_record.c.updated_at > instants[2])
        assert connection.execute(later).scalar_one() == 2
    assert ordered == instants


def test_an_instant_of_another_zone_is_stored_as_utc(engine: Engine) -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    with engine.begin() as connection:
        connection.execute(insert(ing_record).values(record("1", {}, tokyo)))
        found = connection.execute(select(ing_record.c.updated_at)).scalar_one()
    assert found == NOON
    assert found.tzinfo is UTC


def test_a_naive_datetime_is_refused(engine: Engine) -> None:
    with pytest.raises(StatementError, match="naive"), engine.begin() as connection:
        connection.execute(insert(ing_record).values(record("1", {}, datetime(2025, 1, 1))))  # noqa: DTZ001


def test_row_times_are_set_by_the_server_in_utc(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(insert(ing_record).values(record("1", {})))
        created = connection.execute(select(ing_record.c.created_at)).scalar_one()
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=5)


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, True, None, "x"], "b": {"c": {}}},
        {"text": "Ünïcode 订单 😀 \u2028 \" \\ ' % \x01", "订单": "key"},
        [],
        "text",
        0,
        2**53 + 1,
    ],
)
def test_json_comes_back_as_it_was_written(engine: Engine, value: Any) -> None:
    with engine.begin() as connection:
        connection.execute(insert(ing_record).values(record("1", value)))
        assert connection.execute(select(ing_record.c.record)).scalar_one() == value


def test_an_absent_json_is_null_to_sql(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(insert(ing_schedule_instance).values(schedule() | {"trigger_params": None}))
        absent = select(func.count()).where(ing_schedule_instance.c.trigger_params.is_(None))
        assert connection.execute(absent).scalar_one() == 1


def schedule() -> dict[str, Any]:
    return {"scheduler_code": "s", "trigger_type_code": "MANUAL", "triggered_at": NOON, "provenance_code": "p"}


def cursor_row(key: str, number: int) -> dict[str, Any]:
    return {
        "provenance_code": "p",
        "operation_code": "UPDATE",
        "cursor_key": key,
        "namespace_scope_code": "GLOBAL",
        "namespace_key": sha256_hex(""),
        "cursor_type_code": "ID",
        "cursor_value": str(number),
        "normalized_numeric": number,
    }


wide = st.integers(min_value=-(10**38) + 1, max_value=10**38 - 1) | st.integers(min_value=-100, max_value=100)


@per_store
@given(numbers=st.lists(wide, min_size=1, max_size=8, unique=True), bound=wide)
def test_wide_numbers_are_exact_and_ordered(engine: Engine, numbers: list[int], bound: int) -> None:
    value = ing_cursor.c.normalized_numeric
    with engine.begin() as connection:
        connection.execute(delete(ing_cursor))
        connection.execute(insert(ing_cursor), [cursor_row(str(n), number) for n, number in enumerate(numbers)])
        assert connection.execute(select(value).order_by(value)).scalars().all() == sorted(numbers)
        greater = connection.execute(select(value).where(value > bound).order_by(value)).scalars().all()
    assert greater == sorted(number for number in numbers if number > bound)


def test_a_number_of_39_digits_is_refused(engine: Engine) -> None:
    with pytest.raises(StatementError, match="38 digits"), engine.begin() as connection:
        connection.execute(insert(ing_cursor).values(cursor_row("k", 10**38)))


def kpi_value(number: Any, hashed: str = "h") -> dict[str, Any]:
    return {"kpi_id": "K", "op_time": "20251219", "dims": {}, "dims_hash": hashed, "kpi_value": number}


exact = st.decimals(min_value=-(10**28) + 1, max_value=10**28 - 1, places=14) | st.integers(-(2**80), 2**80)


@per_store
@given(numbers=st.lists(exact, min_size=1, max_size=8))
def test_kpi_values_are_exact_to_ten_decimals_and_the_eleventh_is_rounded_half_even(
    engine: Engine, numbers: list[Decimal | int]
) -> None:
    with engine.begin() as connection:
        connection.execute(delete(metrics_kpi_value))
        connection.execute(insert(metrics_kpi_value), [kpi_value(number, str(n)) for n, number in enumerate(numbers)])
        query = select(metrics_kpi_value.c.kpi_value).order_by(metrics_kpi_value.c.id)
        found = connection.execute(query).scalars().all()
    context = Context(prec=80, rounding=ROUND_HALF_EVEN)
    assert found == [Decimal(number).quantize(Decimal("1e-10"), context=context) for number in numbers]


@given(number=st.floats(allow_nan=False, allow_infinity=False, min_value=-1e27, max_value=1e27))
def test_a_float_counts_as_the_shortest_text_that_names_it(number: float) -> None:
    text = decimal_text(exact_number(number))
    assert "e" not in text.lower()
    if abs(number) > 1e-5 and len(repr(number).partition(".")[2]) <= 10 and "e" not in repr(number):
        assert Decimal(text) == Decimal(repr(number))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53 + 1, "9007199254740993"),
        (Decimal("12345678901234.5678"), "12345678901234.5678"),
        (0.1 + 0.2, "0.3"),
        (1e22, "10000000000000000000000"),
        (Decimal("0.00000000005"), "0"),
        (Decimal("0.00000000015"), "0.0000000002"),
        (-0.0, "0"),
        (True, "1"),
        ("12.50", "12.5"),
    ],
)
def test_numbers_are_written_plainly(value: Any, text: str) -> None:
    assert decimal_text(exact_number(value)) == text


@pytest.mark.parametrize("value", [10**28, -1e28, Decimal("9" * 28 + ".99999999999"), "x", float("nan"), None, b"1"])
def test_what_is_no_number_or_too_wide_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"is no number|more than 28 digits"):
        exact_number(value)

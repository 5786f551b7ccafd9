"""Whether and when a batch is executed once more, after each way in which an execution can end before its time."""

from datetime import timedelta

import pytest

from platform_defs.arrivals.executions.next_attempt import FIRST, Order, after_death, after_source_down
from platform_defs.work.rows import EndedBy


def orders_after(ended_by: EndedBy) -> list[Order]:
    """The orders of a batch whose every execution ends in this way, at most thirty."""
    orders = [FIRST]
    while len(orders) < 30 and (order := after_death(ended_by, orders[-1])) is not None:
        orders.append(order)
    return orders


def test_a_batch_whose_process_dies_is_executed_three_times_at_once() -> None:
    assert orders_after(EndedBy.DEATH) == [Order(1), Order(2), Order(3)]


def test_what_the_operator_ended_stays_ended() -> None:
    assert orders_after(EndedBy.OPERATOR) == [FIRST]


def test_restarts_and_releases_count_for_nothing() -> None:
    past = Order(attempt=2, crashes=3, try_number=4, pause=timedelta(minutes=1))
    assert after_death(EndedBy.RESTART, past) == Order(attempt=2, crashes=3, try_number=4)
    assert after_death(EndedBy.RELEASE, past) == FIRST
    assert len(orders_after(EndedBy.RESTART)) == 30


def test_a_batch_during_which_the_host_dies_waits_longer_each_time_and_is_given_up_after_ten() -> None:
    orders = orders_after(EndedBy.HOST)
    assert [order.crashes for order in orders] == list(range(10))
    assert {order.attempt for order in orders} == {1}
    assert [order.pause.total_seconds() for order in orders[1:]] == [5, 10, 20, 40, 80, 160, 320, 600, 600]


@pytest.mark.parametrize(
    ("retries", "pauses"), [(None, [15, 60, 165, 360]), (0, []), (1, [15]), (5, [15, 60, 165, 360, 360])]
)
def test_while_the_source_is_down_a_batch_is_tried_over_ten_minutes_or_as_often_as_the_model_says(
    retries: int | None, pauses: list[float]
) -> None:
    found = []
    order: Order | None = FIRST
    while order is not None and (order := after_source_down(order, retries)) is not None:
        found.append(order)
    assert [order.pause.total_seconds() for order in found] == pauses
    assert [order.try_number for order in found] == list(range(2, len(pauses) + 2))

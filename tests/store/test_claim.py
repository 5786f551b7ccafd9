"""A claimed row belongs to one worker, whoever else asks at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, or_, select

from platform_defs.canonical import sha256_hex
from platform_defs.store.claim import claim
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run_node
from platform_defs.store.tables.ingest import ing_task

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
WORKERS = 6


def task(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "schedule_instance_id": 1,
        "plan_id": 1,
        "slice_id": number,
        "provenance_code": "p",
        "endpoint_name": "e",
        "operation_code": "HARVEST",
        "idempotent_key": sha256_hex(str(number)),
        "expr_hash": sha256_hex("expr"),
        "priority": 5,
        "scheduled_at": NOW,
        "leased_until": None,
    } | changes


def add(engine: Engine, rows: list[dict[str, Any]]) -> None:
    with engine.begin() as connection:
        connection.execute(insert(ing_task), rows)


def take(engine: Engine, owner: str, limit: int) -> list[int]:
    tasks = ing_task.c
    claimed = transact(
        engine,
        lambda connection: claim(
            connection,
            ing_task,
            where=(tasks.status_code == "QUEUED") & or_(tasks.leased_until.is_(None), tasks.leased_until < NOW),
            order_by=[tasks.priority, tasks.scheduled_at, tasks.id],
            limit=limit,
            values={"lease_owner": owner, "leased_until": NOW + timedelta(minutes=1)},
        ),
    )
    assert all(row.lease_owner == owner for row in claimed)
    return [row.slice_id for row in claimed]


def test_the_most_urgent_rows_come_first_and_in_order(engine: Engine) -> None:
    late = NOW + timedelta(seconds=1)
    add(
        engine,
        [
            task(1, priority=9),
            task(2, scheduled_at=late),
            task(3),
            task(4, priority=1),
            task(5, leased_until=NOW - timedelta(seconds=1)),
        ],
    )
    assert take(engine, "w", 4) == [4, 3, 5, 2]
    assert take(engine, "w", 4) == [1]
    assert take(engine, "w", 4) == []


def test_a_row_that_another_leases_is_left_alone(engine: Engine) -> None:
    add(engine, [task(1, leased_until=NOW + timedelta(seconds=1)), task(2)])
    assert take(engine, "w", 4) == [2]


def test_many_workers_drain_the_queue_and_never_share_a_row(engine: Engine) -> None:
    add(engine, [task(number) for number in range(300)])
    start = Barrier(WORKERS)

    def left() -> int:
        with engine.begin() as connection:
            free = select(func.count()).where(ing_task.c.lease_owner.is_(None))
            return connection.execute(free).scalar_one()

    def work(name: str) -> list[int]:
        mine: list[int] = []
        start.wait()
        while True:
            found = take(engine, name, 7)
            mine += found
            if not found and left() == 0:
                return mine

    with ThreadPoolExecutor(WORKERS) as pool:
        shares = list(pool.map(work, [f"w{n}" for n in range(WORKERS)]))
    assert sorted(number for share in shares for number in share) == list(range(300))


def test_rows_with_a_key_of_two_columns_can_be_claimed(engine: Engine) -> None:
    nodes = job_run_node.c
    with engine.begin() as connection:
        rows = [{"run_id": "r", "node_id": name, "status": "PENDING"} for name in "cab"]
        connection.execute(insert(job_run_node), rows)
        claimed = claim(
            connection,
            job_run_node,
            where=nodes.status == "PENDING",
            order_by=[nodes.node_id],
            limit=2,
            values={"status": "RUNNING"},
        )
    assert [row.node_id for row in claimed] == ["a", "b"]


@pytest.mark.parametrize(
    "engine", [pytest.param(store, marks=pytest.mark.needs(store)) for store in ("mysql", "mariadb")], indirect=True
)
def test_rows_that_an_open_transaction_holds_are_passed_over(engine: Engine) -> None:
    add(engine, [task(number) for number in range(10)])
    with engine.begin() as holder:
        first = claim(
            holder,
            ing_task,
            where=ing_task.c.status_code == "QUEUED",
            order_by=[ing_task.c.id],
            limit=5,
            values={"status_code": "DISPATCHED"},
        )
        assert [row.slice_id for row in first] == [0, 1, 2, 3, 4]
        assert take(engine, "other", 5) == [5, 6, 7, 8, 9]

"""Old rows are deleted in bounded transactions, whatever their key is and whoever holds one of them."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, select

from platform_defs.store import deletion
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.tables.lineage import lineage_sql_run
from tests.conftest import STORES

OLD, NEW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
_runs = lineage_sql_run.c


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "ROWS_PER_TRANSACTION", 3)
    monkeypatch.setattr(deletion, "KEYS_PER_STATEMENT", 2)


def add(engine: Engine, created_at: datetime, runs: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(
            lineage_sql_run.insert(),
            [{"tenant_id": 1, "sql_id": "s", "run_uuid": run, "created_at": created_at} for run in runs],
        )


def remaining(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(_runs.run_uuid).order_by(_runs.run_uuid)))


def delete(engine: Engine) -> int:
    return delete_old_rows(
        engine, lineage_sql_run, _runs.created_at < NEW, order_by=_runs.created_at, keep_newest=False
    )


def test_rows_of_one_moment_that_fill_several_transactions_are_all_deleted(engine: Engine) -> None:
    add(engine, OLD, [f"old{number}" for number in range(8)])
    add(engine, NEW, ["new"])
    assert delete(engine) == 8
    assert remaining(engine) == ["new"]


# SQLite has one writer at a time: nobody can hold a row there while another deletes
@pytest.mark.parametrize("engine", STORES[1:], indirect=True)
def test_rows_that_somebody_holds_are_left_for_the_next_time_and_the_others_go(engine: Engine) -> None:
    held, free = [f"a{number}" for number in range(4)], [f"b{number}" for number in range(4)]
    add(engine, OLD, held)
    add(engine, OLD + timedelta(seconds=1), free)
    with engine.begin() as holder:
        holder.execute(select(_runs.run_uuid).where(_runs.run_uuid.in_(held)).with_for_update()).all()
        assert delete(engine) == len(free)
    assert remaining(engine) == held
    assert delete(engine) == len(held)

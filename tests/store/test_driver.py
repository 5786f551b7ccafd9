"""Statements that the driver runs itself mean what they mean through SQLAlchemy, and fail as they would there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, bindparam, event, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from platform_defs.store.driver import Prepared, execute
from platform_defs.store.engine import open_engine, read, server_packet_limit, transact, transact_by_driver
from platform_defs.store.errors import PacketTooLarge
from platform_defs.store.tables.ingest import ing_record

NOON = datetime(2025, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
record = ing_record.c
names = ("provenance_code", "endpoint_name", "provider_id", "updated_at", "record")
ADD = Prepared(insert(ing_record).values({name: bindparam(name) for name in names}))
FIND = Prepared(
    select(record.provider_id, record.updated_at, record.record)
    .where(record.endpoint_name == "works", record.provider_id.in_(bindparam("ids", expanding=True)))
    .order_by(record.provider_id)
)
_move = update(ing_record).where(record.provider_id == bindparam("id")).values(endpoint_name=bindparam("endpoint"))
MOVE = Prepared(_move.values(modified_at=bindparam("now")))
on_servers = pytest.mark.parametrize(
    "engine", [pytest.param(store, marks=pytest.mark.needs(store)) for store in ("mysql", "mariadb")], indirect=True
)


def row(provider_id: str, **others: Any) -> dict[str, Any]:
    values = {"provenance_code": "p", "endpoint_name": "works", "updated_at": NOON, "record": {"id": provider_id}}
    return values | {"provider_id": provider_id} | others


def stored(engine: Engine) -> list[str]:
    query = select(record.provider_id).order_by(record.provider_id)
    return list(read(engine, lambda connection: connection.execute(query).scalars().all()))


def test_values_come_back_as_they_were_given(engine: Engine) -> None:
    later = NOON.astimezone(timezone(timedelta(hours=8)))
    strange = "% 'quoted' \\ \U0001f4da"

    def add(connection: Connection) -> list[int | None]:
        rows = [row("a"), row(strange, updated_at=later, record=[1, None, strange]), row("c")]
        return [ADD.run(connection, each).lastrowid for each in rows]

    ids = transact(engine, add)
    assert [number is not None and number > 0 for number in ids] == [True] * 3
    assert len(set(ids)) == 3
    found = read(engine, lambda connection: FIND.run(connection, {"ids": ["a", strange, "nobody"]})).rows
    assert [tuple(each) for each in found] == [(strange, NOON, [1, None, strange]), ("a", NOON, {"id": "a"})]
    through_sqlalchemy = select(record.provider_id, record.updated_at, record.record).order_by(record.provider_id)
    assert read(engine, lambda connection: connection.execute(through_sqlalchemy).all())[:2] == found


def test_a_statement_tells_how_many_rows_it_found(engine: Engine) -> None:
    transact(engine, lambda connection: [ADD.run(connection, row(name)) for name in "ab"])
    moved = transact(engine, lambda connection: MOVE.run(connection, {"id": "a", "endpoint": "books", "now": NOON}))
    nobody = transact(engine, lambda connection: MOVE.run(connection, {"id": "x", "endpoint": "books", "now": NOON}))
    assert (moved.rowcount, nobody.rowcount) == (1, 0)


def test_a_column_that_sqlalchemy_would_set_is_to_be_named(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"expected a value for ing_record\.modified_at"):
        transact(engine, lambda connection: Prepared(_move).run(connection, {"id": "a", "endpoint": "books"}))


def test_a_value_that_is_missing_or_naive_is_refused_before_anything_is_sent(engine: Engine) -> None:
    incomplete = {name: value for name, value in row("a").items() if name != "record"}
    with pytest.raises(KeyError, match="record"):
        transact(engine, lambda connection: ADD.run(connection, incomplete))
    with pytest.raises(ValueError, match="naive datetime"):
        transact(engine, lambda connection: ADD.run(connection, row("a", updated_at=NOON.replace(tzinfo=None))))
    assert stored(engine) == []


@pytest.mark.parametrize("run", [transact, transact_by_driver])
def test_an_error_is_sqlalchemys_and_leaves_nothing_of_its_transaction(engine: Engine, run: Any) -> None:
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(1)
        ADD.run(connection, row("a"))
        ADD.run(connection, row("b"))
        ADD.run(connection, row("a"))

    with pytest.raises(IntegrityError):
        run(engine, work)
    assert len(tries) == 1
    assert stored(engine) == []
    run(engine, lambda connection: ADD.run(connection, row("a")))
    assert stored(engine) == ["a"]


def test_the_driver_runs_a_statement_and_listeners_hear_of_it(engine: Engine) -> None:
    mark = "?" if engine.dialect.name == "sqlite" else "%s"
    insertion = (
        "INSERT INTO ing_record (provenance_code, endpoint_name, updated_at, record, provider_id)"
        " VALUES ('p', 'works', '2025-03-01 12:00:00', '1', ?)"
    ).replace("?", mark)
    count = "SELECT COUNT(*) FROM ing_record WHERE provider_id < ?".replace("?", mark)

    def work(connection: Connection) -> Any:
        for name in "abc":
            execute(connection, insertion, (name,))
        return execute(connection, count, ("c",)).rows[0][0]

    with heard(engine) as statements:
        assert transact(engine, work) == 2
    assert [statement.split()[0] for statement in statements if "ing_record" in statement] == ["INSERT"] * 3 + [
        "SELECT"
    ]
    assert stored(engine) == ["a", "b", "c"]


@on_servers
def test_a_connection_killed_in_mid_transaction_is_replaced_and_the_work_done_once(engine: Engine) -> None:
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(1)
        ADD.run(connection, row("a"))
        if len(tries) == 1:
            (number,) = execute(connection, "SELECT CONNECTION_ID()").rows[0]
            with engine.connect() as other:
                other.execute(text(f"KILL {number}"))
        ADD.run(connection, row("b"))

    transact(engine, work)
    assert len(tries) == 2
    assert stored(engine) == ["a", "b"]


@on_servers
def test_a_statement_beyond_the_servers_packet_limit_is_refused_at_once(engine: Engine) -> None:
    limit = server_packet_limit(engine)
    assert limit is not None
    with pytest.raises(PacketTooLarge):
        transact(engine, lambda connection: ADD.run(connection, row("a", record="x" * (limit + 1))))
    transact(engine, lambda connection: ADD.run(connection, row("b")))
    assert stored(engine) == ["b"]


@pytest.mark.parametrize("autocommit", [False, True])
def test_the_driver_commits_by_itself_on_engines_of_both_kinds(engine: Engine, autocommit: bool) -> None:
    own = open_engine(engine.url, autocommit=autocommit)
    try:
        transact_by_driver(own, lambda connection: ADD.run(connection, row("a")))
        assert stored(engine) == ["a"]
        count = select(func.count()).select_from(ing_record)
        assert transact_by_driver(own, lambda connection: Prepared(count).run(connection, {})).rows[0][0] == 1
    finally:
        own.dispose()


@contextmanager
def heard(engine: Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)

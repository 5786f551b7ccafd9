"""A database that refuses every statement is away: events must not be blamed for it, or become dead letters."""

import uuid

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import InterfaceError, ProgrammingError

from platform_defs.lineage.sink.commit import is_store_unavailable
from platform_defs.store.engine import open_engine, transact
from tests.conftest import server_url


def error_of(url: URL, statement: str = "SELECT 1") -> Exception:
    engine = open_engine(url, pool_size=1)
    try:
        transact(engine, lambda connection: connection.execute(text(statement)), attempts=1)
    except Exception as error:
        return error
    finally:
        engine.dispose()
    raise AssertionError("expected the server to refuse the statement")


@pytest.mark.needs("mysql")
def test_a_wrong_password_and_a_database_or_table_that_is_not_there_are_no_fault_of_an_event(
    migrated: dict[str, Engine],
) -> None:
    there = migrated["mysql"].url
    absent = f"platform_test_{uuid.uuid4().hex[:12]}"
    errors = [
        error_of(there.set(username=absent, password="wrong")),
        error_of(server_url("mysql").set(database=absent)),
        error_of(there, f"SHOW COLUMNS FROM {absent}"),
    ]
    assert all(map(is_store_unavailable, errors))
    # for a user that does not exist, MySQL makes up a method of logging in, which the driver may refuse by itself
    of_statements = (ProgrammingError, InterfaceError)
    assert all(isinstance(error, of_statements) for error in errors), "the driver calls them faults of the statement"
    assert not is_store_unavailable(error_of(there, "no SQL"))

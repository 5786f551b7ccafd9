"""Keeps the MySQL driver from changing statements before it sends them, and from asking the server before each one."""

import re

from mysql.connector import _scripting
from mysql.connector.connection_cext import CMySQLConnection


def prepare_driver() -> None:
    """Changes the driver for this process; doing it again changes nothing."""
    _keep_statements_as_written()
    _ask_for_no_ping()


def _keep_statements_as_written() -> None:
    """Stops the driver from looking for the client command DELIMITER in statements that already hold their values.

    Its pattern also matches inside text: "a delimiter ; it's" was stored as "a;\\nit's", and the search takes seconds
    on long text. Our statements are single, so nothing is lost; tests/store/test_types.py fails if the driver moves it.
    """
    # tied to the beginning: a pattern that fails at every place of a large statement takes milliseconds to do so
    _scripting.DELIMITER_PATTERN = re.compile(rb"\A(?!)")


def _ask_for_no_ping() -> None:
    """Spares the round trip with which the driver asks whether the server is there before every single statement.

    A statement on a lost connection fails by itself, with an error that names the loss; connections that come out of a
    pool are still asked once. tests/store/test_engine.py fails if the driver asks again.
    """
    CMySQLConnection.is_connected = _has_connection  # type: ignore[method-assign, assignment]


def _has_connection(connection: CMySQLConnection) -> bool:
    if connection._cmysql is None:
        return False
    connection.handle_unread_result()
    return bool(connection._cmysql.connected())

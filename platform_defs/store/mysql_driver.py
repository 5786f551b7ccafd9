"""Changes what the MySQL driver does with statements before it sends them, with pings, and with errors of a commit."""

import functools
import re
from collections.abc import Callable

from _mysql_connector import MySQLInterfaceError  # type: ignore[import-not-found]
from mysql.connector import _scripting
from mysql.connector.connection_cext import CMySQLConnection
from mysql.connector.errors import get_mysql_exception


def prepare_driver() -> None:
    """Changes the driver for this process; doing it again changes nothing."""
    _keep_statements_as_written()
    _ask_for_no_ping()
    _report_errors_of_transaction_ends()


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


def _report_errors_of_transaction_ends() -> None:
    """Makes errors of COMMIT and ROLLBACK errors of the driver, as those of every other statement are.

    The driver lets the error of its C library pass, which nobody takes for a lost connection: a server that went away
    in the moment of a commit was a fault of ours then, and not something to try again.
    """
    for name in ("commit", "rollback"):
        method = getattr(CMySQLConnection, name)
        if not hasattr(method, "__wrapped__"):
            setattr(CMySQLConnection, name, _with_driver_errors(method))


def _with_driver_errors(method: Callable[[CMySQLConnection], None]) -> Callable[[CMySQLConnection], None]:
    @functools.wraps(method)
    def call(connection: CMySQLConnection) -> None:
        try:
            method(connection)
        except MySQLInterfaceError as error:
            raise get_mysql_exception(error.errno, msg=error.msg, sqlstate=error.sqlstate) from error

    return call

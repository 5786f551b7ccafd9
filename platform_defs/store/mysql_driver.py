"""Keeps the MySQL driver from changing statements before it sends them."""

import re

from mysql.connector import _scripting


def keep_statements_as_written() -> None:
    """Stops the driver from looking for the client command DELIMITER in statements that already hold their values.

    Its pattern also matches inside text: "a delimiter ; it's" was stored as "a;\\nit's", and the search takes seconds
    on long text. Our statements are single, so nothing is lost; tests/store/test_types.py fails if the driver moves it.
    """
    _scripting.DELIMITER_PATTERN = re.compile(rb"(?!)")

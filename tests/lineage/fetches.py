"""For tests of memory: how many whole events each statement of a module fetches."""

from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.lineage.sink.rows.stored_rows import Reader, reader_of


def count_fetched(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[int]:
    """A number for each statement with events that the module's reader executes from now on."""
    fetched: list[int] = []

    def counting(engine: Engine) -> Reader:
        reader = reader_of(engine)

        def fetch(query: Any) -> Any:
            rows = reader(query)
            if rows and "event" in rows[0]._fields:
                fetched.append(len(rows))
            return rows

        return fetch

    monkeypatch.setattr(module, "reader_of", counting)
    return fetched

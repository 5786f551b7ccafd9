"""The Dagster resource opens a door whose gate is in the platform's own database."""

from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from platform_defs.http_door.policy import LONGEST_TIMEOUT_S, Passage
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.rate_gate import rate_gate
from resources.http import HttpResource
from tests.http_door.source import answer, serving


def test_a_request_names_the_platform_and_is_booked_in_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    engine = open_engine(Settings.load().database_url)
    migrate.upgrade(engine)
    resource = HttpResource(contact="data@example.org", read_timeout_s=LONGEST_TIMEOUT_S)
    with serving(answer(200, b"{}")) as source, resource.door() as door:
        request = httpx.Request("GET", source.url())
        exchange = door.send(request, Passage("works", timeouts=resource.timeouts))
    assert exchange.response.status_code == 200
    agent = source.asked[0].headers["user-agent"]
    assert agent.startswith("platform-defs/")
    assert agent.endswith("(mailto:data@example.org)")
    with engine.begin() as connection:
        assert connection.execute(select(rate_gate.c.gate_key, rate_gate.c.day_count)).all() == [("works", 1)]
    engine.dispose()

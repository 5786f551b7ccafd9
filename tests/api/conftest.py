"""An API on each store, and the keys to it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import ALL_SCOPES
from tests.api.lineage_client import backend, client, failing, planned
from tests.api.serving import Api, serve_api

__all__ = ["api", "authorization", "backend", "client", "failing", "key", "planned"]


@pytest.fixture
def api(engine: Engine) -> Iterator[Api]:
    with serve_api(engine) as running:
        yield running


@pytest.fixture
def key(engine: Engine) -> str:
    return issue_key(engine, "all", ALL_SCOPES)


@pytest.fixture
def authorization(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}

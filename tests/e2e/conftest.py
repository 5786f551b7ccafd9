"""Running platforms for end-to-end tests: embedded and on the real servers, shared by tests that do not end them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from tests.conftest import dropped_databases, new_database
from tests.e2e.platform_up import PlatformUp
from tests.needs import require


def server_environment(url: URL) -> dict[str, str]:
    """A platform on real MySQL and Neo4j."""
    return {
        "PLATFORM_DB_URL": url.render_as_string(hide_password=False),
        "PLATFORM_GRAPH_URL": require("neo4j"),
    }


BACKENDS = (
    pytest.param("embedded"),
    pytest.param("servers", marks=pytest.mark.needs("mysql", "neo4j")),
)


@pytest.fixture(scope="session", params=BACKENDS)
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformUp]:
    home = tmp_path_factory.mktemp("platform") / "home"
    if request.param == "embedded":
        up = PlatformUp(home)
        try:
            yield up.until_ready()
        finally:
            up.end()
        return
    url, names = new_database("mysql", home)
    up = PlatformUp(home, server_environment(url))
    try:
        yield up.until_ready()
    finally:
        up.end()
        dropped_databases("mysql", names)


@pytest.fixture
def own_home(tmp_path: Path) -> Path:
    """A home for a platform that the test itself starts and ends."""
    return tmp_path / "home"

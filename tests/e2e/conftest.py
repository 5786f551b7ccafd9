"""Running platforms for end-to-end tests: embedded and on the real servers, shared by tests that do not end them."""

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import URL

from platform_defs.graph.neo4j import Neo4jGraph
from tests.conftest import dropped_databases, new_database
from tests.e2e.arrivals_site import Site, opened_site
from tests.e2e.flaky_source import VARIABLE, flaky_source
from tests.e2e.lives import Lives, live
from tests.e2e.tree import copy_with_probes, give_time_to_stop
from tests.e2e.warm import Warm
from tests.graph.conftest import UNHURRIED as UNHURRIED_GRAPH
from tests.needs import require


def server_environment(url: URL) -> dict[str, str]:
    """A platform on real MySQL and Neo4j."""
    return {
        "PLATFORM_DB_URL": url.render_as_string(hide_password=False),
        "PLATFORM_GRAPH_URL": require("neo4j"),
    }


def warm_up(graph_url: str) -> None:
    """A server that has only just started needs seconds for its first connection; `platform up` waits for two."""
    graph = Neo4jGraph(graph_url, timeouts=UNHURRIED_GRAPH)
    try:
        graph.ensure_schema()
    finally:
        graph.close()


# webhook receivers of the tests listen on loopback, which is refused unless an operator allows it
WEBHOOKS = {"PLATFORM_WEBHOOK_ALLOW": "127.0.0.0/8"}
# and so are the servers that http nodes of chains ask; nodes that wait for a file are shell commands
CHAINS = {"PLATFORM_HTTP_ALLOW": "127.0.0.0/8", "PLATFORM_CHAIN_SHELL": "true"}
# On a busy machine an event may take longer than the seconds after which clients are asked to send it again.
UNHURRIED = {"PLATFORM_LINEAGE_DEADLINE_S": "60"}

BACKENDS = (
    pytest.param("embedded"),
    pytest.param("servers", marks=pytest.mark.needs("mysql", "neo4j")),
)


@pytest.fixture(scope="package", params=BACKENDS)
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """One for all tests of a backend, also for those of the runner, hence with the probe jobs.

    It is stopped when the last end-to-end test has ended, because an idle platform takes processor time from the rest.
    """
    folder = tmp_path_factory.mktemp("platform")
    tree = copy_with_probes(folder / "tree")
    names: list[str] = []
    environment = WEBHOOKS | CHAINS | UNHURRIED
    if request.param == "servers":
        warm_up(require("neo4j"))
        url, names = new_database("mysql", folder)
        environment |= server_environment(url)
    try:
        with flaky_source(folder, url if request.param == "servers" else None) as flaky:
            up = Warm(folder / "home", tree, environment | {VARIABLE: flaky.url}, flaky)
            try:
                yield up.until_ready()
            finally:
                up.end()
    finally:
        dropped_databases("mysql", names)


@pytest.fixture
def site(platform: Warm) -> Iterator[Site]:
    """Table arrival on the platform, with names that no other test uses and a table `ORDERS` to read."""
    with opened_site(platform) as opened:
        yield opened


@pytest.fixture(scope="session")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    folder = tmp_path_factory.mktemp("lives")
    tree = give_time_to_stop(copy_with_probes(folder / "tree"))
    return live(folder / "home", tree, folder / "dagster.yaml")

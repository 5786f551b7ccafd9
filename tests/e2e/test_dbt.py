"""A real dbt-ol sends its events to running sinks, embedded and on servers: no command of dbt changes the lineage."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import dropped_databases, new_database
from tests.e2e.conftest import UNHURRIED
from tests.e2e.test_lineage import Place, host, options, place
from tests.lineage.dbt_project import COMMANDS, DERIVED, JOINED, DbtProject, lineage
from tests.needs import require

pytestmark = pytest.mark.needs("dbt", "mysql", "neo4j", "time")
BACKENDS = {"embedded": "sqlite", "servers": "mysql"}


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[dict[str, Place]]:
    """An API on each backend."""
    with ExitStack() as opened:
        found = {}
        for name, store in BACKENDS.items():
            home = tmp_path / name
            home.mkdir()
            url, names = new_database(store, home)
            opened.callback(dropped_databases, store, names)
            graph_url = require("neo4j") if name == "servers" else "embedded"
            own = opened.enter_context(host(url, home, graph_url, seen_as=UNHURRIED))
            found[name] = opened.enter_context(place(own))
        yield found


def test_lineage_is_the_same_after_every_command_of_a_real_dbt(sinks: dict[str, Place], tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    project = DbtProject(folder, Path(require("dbt")))
    to_all = {
        "type": "composite",
        "continue_on_failure": False,
        "transports": {name: {"type": "http", **options(sink, "gzip")} for name, sink in sinks.items()},
    }
    rows = dict.fromkeys(sinks, 0)
    for command in COMMANDS:
        project.run(command, to_all)
        for name, sink in sinks.items():
            sent, rows[name] = sink.rows() - rows[name], sink.rows()
            assert sent, f"{command} sent no event to the sink {name}"
            with sink.graph() as graph:
                assert lineage(graph.for_tenant(sink.tenant.id)) == (DERIVED, JOINED), (command, name)

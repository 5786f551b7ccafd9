"""Every DAG of the data set, all enabled at once: they load as jobs of one code location, and all of them end."""

from collections.abc import Iterator

import pytest
from dagster import Definitions

from assets.chains.driving import opened_driver
from assets.chains.loading import chain_jobs, load_enabled_chains
from assets.chains.names import CHAIN_TAG, aliases
from platform_defs.chains.runs.happenings import RunEnded
from platform_defs.chains.runs.queries import list_nodes
from platform_defs.chains.runs.starting import start_chain
from platform_defs.chains.states import RunStatus
from tests.chains.dagster.shown import Shown, shown
from tests.chains.real_dags import all_names, assert_order, nodes_of
from tests.conftest import needs

pytestmark = needs("data", "time")
# Executed over HTTP (tests/e2e/test_chains.py).
LARGEST = "wf_seismology-chameleon-1000p-001"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with shown(tmp_path_factory.mktemp("home")) as found:
        for name in all_names():
            found.chain(name, nodes_of(name))
        yield found


def test_all_load_at_once_with_every_node_and_edge(platform: Shown) -> None:
    jobs = chain_jobs(load_enabled_chains())
    assert len(jobs) == len(all_names()) > 50
    repository = Definitions(jobs=jobs).get_repository_def()
    loaded = {job.tags[CHAIN_TAG]: job for job in repository.get_all_jobs() if CHAIN_TAG in job.tags}
    for name in all_names():
        dag = nodes_of(name)
        alias_of = aliases(node["id"] for node in dag)
        structure = loaded[name].graph.dependency_structure
        for node in dag:
            above = {
                handle.node_name
                for handles in structure.input_to_upstream_outputs_for_node(alias_of[node["id"]]).values()
                for handle in handles
            }
            assert above == {alias_of[dependency] for dependency in node["dependsOn"]}


def test_all_end_in_an_order_that_respects_every_edge(platform: Shown) -> None:
    chains = {chain.name: chain for chain in load_enabled_chains()}
    for name in set(all_names()) - {LARGEST}:
        started = start_chain(platform.engine, chains[name].chain_id, actor="test", trigger="test")
        assert started.drive is not None
        with opened_driver(platform.engine, started.drive, interrupted=lambda: False, may_park=True) as driver:
            *_, end = driver.drive()
        assert end == RunEnded(RunStatus.SUCCESS), name
        nodes = {node.node_id: (node.started_at, node.ended_at) for node in list_nodes(platform.engine, started.run_id)}
        assert_order(nodes_of(name), nodes)

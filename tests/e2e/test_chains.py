"""Chains on a running platform: real DAGs, launches and terminations in the UI, chains that change all the time."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chains.real_dags import all_names, assert_order, nodes_of
from tests.conftest import needs
from tests.e2e.chains_site import ChainsSite, print_node, shell, waits_for_file
from tests.e2e.platform_up import SELECTOR, PlatformUp
from tests.waiting import PATIENCE_S, until

SAMPLE = ("airflow_example_complex", "argo_dag-targets__dag-target", "wf_montage-chameleon-2mass-005d-001")
LARGEST = "wf_seismology-chameleon-1000p-001"


@pytest.fixture(scope="module")
def site(platform: PlatformUp) -> Iterator[ChainsSite]:
    with ChainsSite(platform) as found:
        yield found


def new_name(prefix: str) -> str:
    """The platform is shared, and names of chains are unique."""
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def run_to_its_end(site: ChainsSite, dag: list[dict[str, Any]], seconds: float = PATIENCE_S) -> None:
    chain_id = site.chain(new_name("real"), dag)
    run_id = site.start(chain_id)
    assert site.until_run(run_id, "SUCCESS", "FAILED", "STOPPED", seconds=seconds)["status"] == "SUCCESS"
    nodes = site.nodes(run_id)
    assert {node["status"] for node in nodes.values()} == {"SUCCESS"}
    assert {node["attempt"] for node in nodes.values()} == {1}
    assert_order(dag, {name: (node["startedAt"], node["endedAt"]) for name, node in nodes.items()})
    (shown,) = site.dagster_runs(run_id)
    until("Dagster to say so", lambda: site.dagster_runs(run_id)[0]["status"] == "SUCCESS")
    assert len(shown["stepStats"]) == len(dag)
    # the definitions of the shared platform need not hold thousands of nodes for the tests that follow
    site.call("POST", f"/chains/{chain_id}:disable")


@needs("data")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_real_dag_ends_in_an_order_that_respects_every_edge(site: ChainsSite, name: str) -> None:
    run_to_its_end(site, nodes_of(name))


@needs("data", "time")
@pytest.mark.parametrize("platform", ["embedded"], indirect=True)
def test_the_largest_real_dag_ends_in_an_order_that_respects_every_edge(site: ChainsSite) -> None:
    assert LARGEST in all_names()
    run_to_its_end(site, nodes_of(LARGEST), seconds=4 * PATIENCE_S)


@needs("time")
@pytest.mark.parametrize("platform", ["embedded"], indirect=True)
def test_a_line_of_two_thousand_nodes_ends(site: ChainsSite) -> None:
    line = [print_node(f"n{number}", *([f"n{number - 1}"] if number else [])) for number in range(2000)]
    run_to_its_end(site, line, seconds=4 * PATIENCE_S)


def job_names(platform: PlatformUp) -> set[str]:
    found = platform.graphql(
        """query ($at: RepositorySelector!) { repositoryOrError(repositorySelector: $at) {
             ... on Repository { jobs { name } } } }""",
        at=SELECTOR,
    )["repositoryOrError"]["jobs"]
    return {job["name"] for job in found}


def tag(run: dict[str, Any], key: str) -> str:
    return str(next(item["value"] for item in run["tags"] if item["key"] == key))


@pytest.mark.parametrize("platform", ["embedded"], indirect=True)
def test_launching_the_job_is_a_start_and_terminating_it_a_stop(
    site: ChainsSite, platform: PlatformUp, tmp_path: Path
) -> None:
    name = new_name("launched")
    chain_id = site.chain(name, [waits_for_file("a", tmp_path), print_node("b", "a")])
    until("the job to be shown", lambda: f"chain_{name}" in job_names(platform))
    launched = platform.launch(f"chain_{name}", runConfigData={"execution": {"config": {"params": {"day": "1"}}}})
    until("the node to run", (tmp_path / "a.begun").exists)
    run_id = tag(platform.run(launched), "platform/chain_run")
    run = site.run(run_id)
    assert (run["chainId"], run["status"]) == (chain_id, "RUNNING")
    terminated = platform.graphql("mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=launched)[
        "terminateRun"
    ]
    assert terminated["__typename"] == "TerminateRunSuccess"
    site.until_run(run_id, "STOPPED")
    platform.until_status(launched, "CANCELED")
    nodes = site.nodes(run_id)
    assert [nodes["a"]["status"], nodes["b"]["status"]] == ["STOPPED", "SKIPPED"]
    assert nodes["a"]["lastError"] == "the run was stopped by operator"
    (tmp_path / "open").touch()
    site.call("POST", f"/runs/{run_id}/nodes/a:retry")
    site.until_run(run_id, "SUCCESS")
    first, second = site.dagster_runs(run_id)
    assert (first["runId"], second["rootRunId"]) == (launched, launched)


def test_a_stop_interrupts_a_command_and_a_retry_goes_on(site: ChainsSite, tmp_path: Path) -> None:
    run_id = site.start(site.chain(new_name("stopped"), [waits_for_file("a", tmp_path), print_node("b", "a")]))
    until("the node to run", (tmp_path / "a.begun").exists)
    assert site.call("POST", f"/runs/{run_id}:stop")["status"] == "STOPPING"
    site.until_run(run_id, "STOPPED")
    until("Dagster to say so", lambda: site.dagster_runs(run_id)[0]["status"] == "CANCELED")
    (tmp_path / "open").touch()
    assert site.call("POST", f"/runs/{run_id}/nodes/a:retry")["attempt"] == 2
    site.until_run(run_id, "SUCCESS")


def test_a_complete_goes_on_below_while_the_attempt_is_ended(site: ChainsSite, tmp_path: Path) -> None:
    nodes = [waits_for_file("a", tmp_path), shell("b", "echo '{\"seen\": 1}'", "a")]
    run_id = site.start(site.chain(new_name("completed"), nodes))
    until("the node to run", (tmp_path / "a.begun").exists)
    site.call("POST", f"/runs/{run_id}/nodes/a:complete", {"artifactJson": '{"by": "hand"}', "reason": "known"})
    site.until_run(run_id, "SUCCESS")
    assert site.nodes(run_id)["a"]["artifactJson"] in ({"by": "hand"}, '{"by": "hand"}', '{"by":"hand"}')

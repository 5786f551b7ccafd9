"""The fourteen cases of chapter J of the seed, over HTTP against a running platform."""

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest

from platform_defs.chains.runs.queries import list_drives
from tests import loopback
from tests.conftest import needs
from tests.e2e.node_server import NodeServer, serving_nodes
from tests.e2e.warm import Warm
from tests.waiting import until

CHAINS, RUNS = "/api/v1/chains", "/api/v1/runs"
ENDED = {"SUCCESS", "FAILED", "STOPPED"}


@dataclass
class Site:
    """A running platform, the server that its nodes ask, and a name that no other test uses."""

    client: httpx.Client
    nodes: NodeServer
    name: str

    def call(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.client.request(method, path, json=body, headers=named)
        assert answer.status_code == status, answer.text
        return answer.json()

    def create(self, *nodes: dict[str, Any], status: int = 200, **fields: Any) -> Any:
        content = {"name": self.name, "dagJson": json.dumps({"nodes": list(nodes)}), **fields}
        return self.call("POST", CHAINS, content, status)

    def start(self, *nodes: dict[str, Any]) -> str:
        run_id: str = self.call("POST", f"{CHAINS}/{self.create(*nodes)['chainId']}:start")["runId"]
        return run_id

    def status(self, run_id: str) -> str:
        status: str = self.call("GET", f"{RUNS}/{run_id}")["status"]
        return status

    def until_run(self, run_id: str, status: str) -> None:
        def look() -> bool:
            present = self.status(run_id)
            assert present == status or present not in ENDED, self.rows(run_id)
            return present == status

        until(f"the run to be {status}", look)

    def until_node(self, run_id: str, node_id: str, status: str) -> dict[str, Any]:
        until(f"node {node_id} to be {status}", lambda: self.rows(run_id)[node_id]["status"] == status)
        return self.rows(run_id)[node_id]

    def rows(self, run_id: str) -> dict[str, dict[str, Any]]:
        return {row["nodeId"]: row for row in self.call("GET", f"{RUNS}/{run_id}/nodes")}

    def node(self, run_id: str, node_id: str, verb: str, body: Any = None, status: int = 200) -> Any:
        return self.call("POST", f"{RUNS}/{run_id}/nodes/{node_id}:{verb}", body, status)


@pytest.fixture
def site(platform: Warm) -> Iterator[Site]:
    headers = {"Authorization": f"Bearer {platform.key}"}
    with (
        serving_nodes() as nodes,
        loopback.client(base_url=platform.up["api"], headers=headers) as client,
    ):
        yield Site(client, nodes, f"chain-{uuid.uuid4().hex[:8]}")


def printing(node_id: str, *above: str) -> dict[str, Any]:
    return {"id": node_id, "type": "print", "dependsOn": list(above), "cfg": {"message": f"I am {node_id}"}}


def test_01_to_03_a_chain_is_created_unless_its_name_is_taken_or_it_has_no_nodes(site: Site) -> None:
    made = site.create(printing("a"))
    assert made["chainId"]
    assert made["version"] == 1
    assert site.create(printing("a"), status=400)["error"] == f"chain name already exists: {site.name}"
    refused = site.call("POST", CHAINS, {"name": f"{site.name}-2", "dagJson": '{"nodes": []}'}, 400)
    assert refused["error"] == "dag must have nodes"


def test_04_to_06_an_update_needs_the_version_and_a_start_an_enabled_chain(site: Site) -> None:
    made = site.create(printing("a"))
    one = f"{CHAINS}/{made['chainId']}"
    changed = {"name": site.name, "dagJson": {"nodes": [printing("b")]}, "version": 1}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: site.client.put(one, json=changed), range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert site.call("PUT", one, changed, 409)["error"] == "chain version conflict or not found"
    assert site.call("GET", one)["version"] == 2
    assert site.call("POST", f"{one}:disable")["enabled"] is False
    assert site.call("POST", f"{one}:start", status=409)["error"] == "chain is disabled"


def test_07_and_08_chains_are_found_by_keyword_and_read_with_their_dag(site: Site) -> None:
    made = site.create(printing("a"), enabled=False)
    query = f"{CHAINS}?page=1&size=20&keyword={site.name.upper()}&enabled="
    assert [item["chainId"] for item in site.call("GET", f"{query}false")["items"]] == [made["chainId"]]
    assert site.call("GET", f"{query}true")["total"] == 0
    assert json.loads(site.call("GET", f"{CHAINS}/{made['chainId']}")["dagJson"]) == {"nodes": [printing("a")]}


def test_09_to_11_a_run_goes_from_pending_over_running_to_its_end(site: Site) -> None:
    site.nodes.hold("a")
    site.nodes.failing.add("x")
    chain = site.create(site.nodes.node("a"), printing("b", "a"), site.nodes.node("x"), printing("y", "x"))
    with ThreadPoolExecutor(10) as pool:
        start = f"{CHAINS}/{chain['chainId']}:start"
        answers = list(pool.map(lambda _: site.call("POST", start, Idempotency_Key="one"), range(50)))
    (run_id,) = {answer["runId"] for answer in answers}
    assert set(site.rows(run_id)) == {"a", "b", "x", "y"}
    until("node a to ask", lambda: site.nodes.asked["a"])
    assert site.status(run_id) == "RUNNING"
    # an independent branch goes on while another has failed
    assert "500" in site.until_node(run_id, "x", "FAILED")["lastError"]
    assert site.status(run_id) == "RUNNING"
    site.nodes.release("a")
    site.until_run(run_id, "FAILED")
    rows = site.rows(run_id)
    assert {name: row["status"] for name, row in rows.items()} == {
        "a": "SUCCESS",
        "b": "SUCCESS",
        "x": "FAILED",
        "y": "SKIPPED",
    }
    assert json.loads(rows["a"]["artifactJson"]) == {"name": "a"}
    assert rows["a"]["startedAt"] < rows["a"]["endedAt"]
    assert site.nodes.asked["a"] == 1


def test_12_a_stop_ends_a_running_run(site: Site) -> None:
    site.nodes.hold("a")
    run_id = site.start(site.nodes.node("a"), printing("b", "a"))
    until("node a to ask", lambda: site.nodes.asked["a"])
    assert site.call("POST", f"{RUNS}/{run_id}:stop") == {"runId": run_id, "status": "STOPPING"}
    site.until_run(run_id, "STOPPED")
    assert {name: row["status"] for name, row in site.rows(run_id).items()} == {"a": "STOPPED", "b": "SKIPPED"}
    assert site.call("POST", f"{RUNS}/{run_id}:stop")["status"] == "STOPPED"
    # and a node that was stopped can be retried
    site.nodes.release("a")
    assert site.node(run_id, "a", "retry")["attempt"] == 2
    site.until_run(run_id, "SUCCESS")
    assert site.call("POST", f"{RUNS}/{run_id}:stop", status=409)["error"] == "run has already ended: SUCCESS"


def test_12b_a_run_that_only_waits_has_no_process_and_is_stopped_at_once(site: Site, platform: Warm) -> None:
    cfg = {"table": f"T_{site.name}", "opTime": "20251219"}
    run_id = site.start({"id": "a", "type": "wait_for_arrival", "cfg": cfg}, printing("b", "a"))

    def row() -> Any:
        (drive,) = list_drives(platform.engine, run_id)
        return platform.row(drive.dagster_run_id)

    def has_given_its_slot_back() -> bool:
        found = row()
        return bool(found.status == "QUEUED" and found.attempts == 1)

    until("the run to give its slot back", has_given_its_slot_back)
    assert site.rows(run_id)["a"]["status"] == "RUNNING"
    site.call("POST", f"{RUNS}/{run_id}:stop")
    assert site.status(run_id) == "STOPPED"
    platform.until_status(row().run_id, "CANCELED")


def test_13_a_failed_node_is_retried_and_the_run_goes_on(site: Site) -> None:
    site.nodes.failing.add("a")
    run_id = site.start(site.nodes.node("a"), printing("b", "a"), printing("c"))
    site.until_run(run_id, "FAILED")
    assert site.node(run_id, "c", "retry", status=409)["errorCode"] == "NODE_NOT_RETRYABLE"
    assert site.node(run_id, "b", "retry", status=409)["errorCode"] == "NODE_NOT_RETRYABLE"
    site.nodes.failing.clear()
    assert site.node(run_id, "a", "retry", {"reason": "the server is back"}) == {
        "runId": run_id,
        "nodeId": "a",
        "status": "RETRYING",
        "attempt": 2,
    }
    site.until_run(run_id, "SUCCESS")
    rows = site.rows(run_id)
    assert (rows["a"]["attempt"], rows["b"]["status"], rows["c"]["attempt"]) == (2, "SUCCESS", 1)
    # what succeeded before was not executed again
    assert site.nodes.asked["a"] == 2


def test_14_a_node_is_completed_by_hand_while_it_runs_and_after_it_failed(site: Site) -> None:
    site.nodes.hold("a")
    site.nodes.failing.add("c")
    run_id = site.start(site.nodes.node("a"), printing("b", "a"), site.nodes.node("c", "b"), printing("d", "c"))
    until("node a to ask", lambda: site.nodes.asked["a"])
    assert site.node(run_id, "b", "complete", status=409)["errorCode"] == "NODE_NOT_COMPLETABLE"
    done = site.node(run_id, "a", "complete", {"artifactJson": '{"rows": 7}', "reason": "loaded by hand"})
    assert (done["status"], done["attempt"]) == ("SUCCESS", 1)
    site.until_run(run_id, "FAILED")
    site.nodes.release("a")
    assert json.loads(site.rows(run_id)["a"]["artifactJson"]) == {"rows": 7}
    assert site.node(run_id, "d", "complete", status=409)["errorCode"] == "NODE_NOT_COMPLETABLE"
    assert site.node(run_id, "c", "complete")["status"] == "SUCCESS"
    site.until_run(run_id, "SUCCESS")
    again = site.node(run_id, "c", "complete")
    assert (again["status"], again["attempt"]) == ("SUCCESS", 1)
    assert {row["status"] for row in site.rows(run_id).values()} == {"SUCCESS"}


def has_more_than(things: Sequence[Any], count: int) -> bool:
    return len(things) > count


@needs("time")
@pytest.mark.parametrize("platform", ["embedded"], indirect=True)
def test_a_chain_that_is_changed_all_the_time_holds_up_no_start_and_no_job(site: Site, platform: Warm) -> None:
    chain = site.create(printing("a"))
    done, versions = threading.Event(), [1]

    def change() -> None:
        while not done.wait(1):
            content = {"nodes": [printing(f"a{versions[-1]}")]}
            body = {"name": site.name, "dagJson": content, "version": versions[-1]}
            versions.append(site.call("PUT", f"{CHAINS}/{chain['chainId']}", body)["version"])

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(3):
            until("another version", partial(has_more_than, versions, len(versions)))
            run_id = site.call("POST", f"{CHAINS}/{chain['chainId']}:start")["runId"]
            site.until_run(run_id, "SUCCESS")
        selfcheck = platform.launch("selfcheck")
        platform.until_status(selfcheck, "SUCCESS")
        changed_meanwhile = len(versions)
    finally:
        done.set()
        changing.join()
    assert changed_meanwhile > 4
    # each run kept the DAG of its start
    (node_id,) = site.rows(run_id)
    assert node_id.startswith("a")

"""A platform whose chains are used over HTTP, as their users do."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import loopback
from tests.e2e.platform_up import PlatformUp
from tests.waiting import PATIENCE_S, until

SCOPES = "chain:read,chain:write,run:read,run:write,run:control"
ENDED = ("SUCCESS", "FAILED", "STOPPED")


class ChainsSite:
    def __init__(self, platform: PlatformUp) -> None:
        self.platform = platform
        issued = platform.command("keys", "issue", f"chains-{uuid.uuid4().hex[:8]}", "--scopes", SCOPES)
        assert issued.returncode == 0, issued.stderr
        self.key = issued.stdout.strip()
        self.client = loopback.client(base_url=platform.up["api"], headers={"Authorization": f"Bearer {self.key}"})

    def __enter__(self) -> "ChainsSite":
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    def call(self, method: str, path: str, body: Any = None, expected: int = 200) -> Any:
        answer = self.client.request(method, f"/api/v1{path}", json=body)
        assert answer.status_code == expected, answer.text
        return answer.json()

    def chain(self, name: str, nodes: Sequence[Mapping[str, Any]], **other: Any) -> str:
        body = {"name": name, "dagJson": json.dumps({"job": name[:128], "nodes": list(nodes)}), **other}
        chain_id: str = self.call("POST", "/chains", body)["chainId"]
        return chain_id

    def start(self, chain_id: str, **params: Any) -> str:
        run_id: str = self.call("POST", f"/chains/{chain_id}:start", {"params": params})["runId"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.call("GET", f"/runs/{run_id}")
        return run

    def nodes(self, run_id: str) -> dict[str, dict[str, Any]]:
        return {node["nodeId"]: node for node in self.call("GET", f"/runs/{run_id}/nodes")}

    def until_run(self, run_id: str, *statuses: str, seconds: float = PATIENCE_S) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["status"] in statuses else None

        return until(f"run {run_id} to be {' or '.join(statuses)}", look, seconds) or {}

    def until_node(self, run_id: str, node_id: str, *statuses: str) -> None:
        what = f"node {node_id} of {run_id} to be {' or '.join(statuses)}"
        until(what, lambda: self.nodes(run_id)[node_id]["status"] in statuses)

    def dagster_runs(self, run_id: str) -> list[dict[str, Any]]:
        """The Dagster runs of a run, the oldest first."""
        found: list[dict[str, Any]] = self.platform.graphql(
            """query ($filter: RunsFilter!) { runsOrError(filter: $filter) { ... on Runs { results {
                 runId status jobName rootRunId creationTime tags { key value }
                 stepStats { stepKey status } } } } }""",
            filter={"tags": [{"key": "platform/chain_run", "value": run_id}]},
        )["runsOrError"]["results"]
        return sorted(found, key=lambda run: float(run["creationTime"]))


def print_node(node_id: str, *depends_on: str, **other: Any) -> dict[str, Any]:
    cfg = {"message": f"I am {node_id}"}
    return {"id": node_id, "type": "print", "cfg": cfg, "dependsOn": list(depends_on), **other}


def shell(node_id: str, command: str, *depends_on: str, **other: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "shell", "cfg": {"command": command}, "dependsOn": list(depends_on), **other}


def waits_for_file(node_id: str, folder: Path, *depends_on: str, **other: Any) -> dict[str, Any]:
    """Notes its begin in a file of its own, and succeeds once the file `open` is there."""
    begin = f"echo begun >> {folder}/{node_id}.begun"
    return shell(node_id, f"{begin}; until test -e {folder}/open; do sleep 0.1; done", *depends_on, **other)


@contextmanager
def chains_platform(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[ChainsSite]:
    up = PlatformUp(home, {"PLATFORM_CHAIN_SHELL": "true", **(environment or {})})
    try:
        up.until_ready()
        with ChainsSite(up) as site:
            yield site
    finally:
        up.end()

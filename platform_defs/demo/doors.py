"""The API as the demo's writer uses it: HTTP with the demo key, one line for whatever it refuses."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from platform_defs.arrivals.partitions import MODEL_PREFIX
from platform_defs.dagster_instance import LOCATION
from platform_defs.demo.state import DemoError, DemoStatus, read_state
from platform_defs.supervisor.home import read_up

# longer than an API with a generous deadline may take for an event
TIMEOUT_S = 90.0
# how long an answer of 503 is waited out: a store may be busy while everything starts
PATIENCE_S = 20.0
PAUSE_S = 0.5
UI_S = 3.0
_KNOWN = """query ($key: AssetKeyInput!, $batch: String!, $job: PipelineSelector!, $table: AssetKeyInput!) {
  asset: assetNodeOrError(assetKey: $key) {
    __typename ... on AssetNode { latestRunForPartition(partition: $batch) { status } } }
  job: pipelineOrError(params: $job) { __typename }
  table: assetNodeOrError(assetKey: $table) { __typename } }"""
_ENDED = ("FAILURE", "SUCCESS", "CANCELED")


@dataclass(frozen=True)
class RunningPlatform:
    """What up.json says: addresses and the demo key."""

    api: str
    ui: str
    key: str


def running_platform(home: Path) -> RunningPlatform:
    up = read_up(home)
    if up is None:
        is_written = (state := read_state(home)) is not None and state.status is DemoStatus.WRITTEN
        advice = "`platform up` starts it" if is_written else "`platform up --demo` starts it and writes the demo"
        raise DemoError(f"nothing is running in {home}; {advice}")
    if up["demo_key"] is None:
        raise DemoError("the platform runs without the demo; stop it and run `platform up --demo`")
    return RunningPlatform(up["api"], up["ui"], up["demo_key"])


def ui_knows(ui: str, *, model: str, batch: str, job: str, table: Sequence[str] | None) -> bool:
    """Whether the code location has been loaded since all of them were written, and the batch's run has ended.

    The page of a batch asks once for its run: opened a moment too early, it does not say why the batch is red. `table`
    is the key of a table of lineage, None where the UI shows none.
    """
    selector = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION, "pipelineName": job}
    key = [MODEL_PREFIX, model]
    variables = {"key": {"path": key}, "batch": batch, "job": selector, "table": {"path": list(table or key)}}
    try:
        answer = httpx.post(
            f"{ui}/graphql", json={"query": _KNOWN, "variables": variables}, timeout=UI_S, trust_env=False
        )
        found = answer.json()["data"]
        types = {name: one["__typename"] for name, one in found.items()}
        is_loaded = types == {"asset": "AssetNode", "job": "Pipeline", "table": "AssetNode"}
        return is_loaded and found["asset"]["latestRunForPartition"]["status"] in _ENDED
    except (httpx.HTTPError, ValueError, KeyError, AttributeError, TypeError):
        return False  # it is reloading, or is not Dagster's own; nothing depends on it


class Api:
    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, Any] | Sequence[Any], *, key: str | None = None, **query: Any) -> Any:
        """With a `key` the same request again gives what the first one made."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._ask("POST", path, json=body, params=query, headers=headers)

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = self._client.request(method, path, **request)
            except httpx.HTTPError as error:
                raise DemoError(f"{method} {path}: the API does not answer ({error})") from None
            if answer.status_code != 503 or time.monotonic() > give_up_at:
                break
            time.sleep(PAUSE_S)
        if not answer.is_success:
            raise DemoError(f"{method} {path} was answered with {answer.status_code}: {answer.text[:300]}")
        return answer.json()


@contextmanager
def open_api(platform: RunningPlatform) -> Iterator[Api]:
    headers = {"Authorization": f"Bearer {platform.key}"}
    # not through a proxy of the environment: the API is on this machine
    with httpx.Client(base_url=platform.api, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
        yield Api(client)

"""A real `platform up` under test: started, asked over HTTP and GraphQL, stopped, and searched for leftovers."""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from platform_defs.store.engine import open_engine
from platform_defs.supervisor.demo import ensure_demo_key
from tests import loopback
from tests.ports import free_ports
from tests.supervisor.running import lives
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
LOCATION = "platform"
# On a busy machine the run of a selfcheck may take longer than the minute for which a person waits.
PATIENTLY = ("--timeout", str(PATIENCE_S))
SELECTOR = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION}


class PlatformUp:
    def __init__(
        self, home: Path, environment: dict[str, str] | None = None, folder: Path = ROOT, *, demo: bool = False
    ) -> None:
        self.home = home
        self.folder = folder
        self.lines: list[str] = []
        self.environment = os.environ | {"PLATFORM_HOME": str(home), **(environment or {})}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # with servers there is no demo unless somebody asks for it
        without_demo = [] if demo or "PLATFORM_DB_URL" in self.environment else ["--no-demo"]
        api, ui = free_ports(2)
        self.process = subprocess.Popen(
            [*PLATFORM, "up", *without_demo, "--api-port", str(api), "--ui-port", str(ui)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    # -- what it says -----------------------------------------------------------------------------------------------

    def until_ready(self) -> Self:
        def look() -> bool:
            assert self.process.poll() is None, "\n".join(self.lines[-30:])
            # by what it says: the file alone may be one that a killed platform left
            return any("Ready in" in line for line in self.lines)

        try:
            until("the platform to be ready", look, 2 * PATIENCE_S)
        except BaseException:
            self.end()  # what it leaves open would fail another test
            raise
        return self

    @property
    def up(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.home / "up.json").read_text())
        return content

    @cached_property
    def key(self) -> str:
        """A key with all scopes, of the demo tenant."""
        engine = open_engine(self.environment.get("PLATFORM_DB_URL", f"sqlite:///{self.home}/platform.db"))
        try:
            return ensure_demo_key(engine, self.home)
        finally:
            engine.dispose()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PLATFORM, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )

    # -- asking it --------------------------------------------------------------------------------------------------

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        answer = loopback.post(f"{self.up['ui']}/graphql", json={"query": query, "variables": variables})
        content: dict[str, Any] = answer.json()
        assert "errors" not in content, content["errors"]
        data: dict[str, Any] = content["data"]
        return data

    def send_event(self, event: dict[str, Any]) -> dict[str, Any]:
        """Sends a lineage event until it is acknowledged: 503 asks a client to send it again."""

        def look() -> dict[str, Any] | None:
            headers = {"Authorization": f"Bearer {self.key}"}
            answer = loopback.post(f"{self.up['api']}/api/openlineage", json=event, headers=headers)
            assert answer.status_code in (201, 503), answer.text
            return dict(answer.json()) if answer.status_code == 201 else None

        return until("the event to be acknowledged", look) or {}

    def launch(self, job: str, **execution: Any) -> str:
        """Launches a job as the UI does; returns the run's id."""
        data = self.graphql(
            """mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
                 __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            params={"selector": SELECTOR | {"jobName": job}, "runConfigData": {}, **execution},
        )["launchRun"]
        assert data["__typename"] == "LaunchRunSuccess", data
        run_id: str = data["run"]["runId"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.graphql(
            """query ($id: ID!) { runOrError(runId: $id) { ... on Run {
                 status startTime endTime updateTime tags { key value } stats { ... on RunStatsSnapshot { launchTime } }
                 assetMaterializations { assetKey { path } metadataEntries { label
                   ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue }
                   ... on FloatMetadataEntry { floatValue } } }
                 eventConnection { events { __typename ... on MessageEvent { message } } } } } }""",
            id=run_id,
        )["runOrError"]
        return run

    def until_status(self, run_id: str, *statuses: str, seconds: float = PATIENCE_S) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run.get("status") in statuses else None

        return until(f"run {run_id} to be {' or '.join(statuses)}", look, seconds) or {}

    # -- ending it --------------------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Everything that belongs to this home, however deep: its environment names the home."""
        return processes_of(self.home)

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._close()
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.stop()
        else:
            self._close()

    def _close(self) -> None:
        self._reader.join(5)  # what it started may outlive it, and holds the other end
        if self.process.stdout is not None:
            self.process.stdout.close()


def processes_of(home: Path) -> list[int]:
    mark = f"PLATFORM_HOME={home}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if mark in environment and lives(int(entry.name)):
                found.append(int(entry.name))
    return found


PLATFORM = (str(Path(sys.executable).with_name("platform")),)

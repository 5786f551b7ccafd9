"""A platform under test on a copy of its code with the probe jobs, and a view into its rows of work."""

from pathlib import Path

from sqlalchemy import Engine

from platform_defs.store.engine import open_engine
from platform_defs.work import rows
from tests.e2e.flaky_source import FlakySource
from tests.e2e.platform_up import PlatformUp
from tests.waiting import until


def folder_with_assets(below: Path) -> Path:
    """A working directory with an `assets` package of its user's own, which no process may import instead of ours."""
    package = below / "elsewhere" / "assets"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise RuntimeError('the assets of the working directory')\n")
    return package.parent


class Warm(PlatformUp):
    def __init__(
        self,
        home: Path,
        tree: Path,
        environment: dict[str, str] | None = None,
        flaky: FlakySource | None = None,
    ) -> None:
        super().__init__(home, {"PYTHONPATH": str(tree), **(environment or {})}, folder_with_assets(tree.parent))
        self.tree = tree
        self.flaky = flaky
        self.engine: Engine = open_engine(self.environment.get("PLATFORM_DB_URL", f"sqlite:///{home}/platform.db"))

    def hold(self, seconds: float) -> str:
        return self.launch("holding", runConfigData={"ops": {"hold": {"config": {"seconds": seconds}}}})

    def pid_of(self, run_id: str) -> int:
        def look() -> int | None:
            row = rows.find_by_run_id(self.engine, run_id)
            return row.process.pid if row is not None and row.process is not None else None

        return int(until("the run to have a process", look) or 0)

    def runner_of(self, run_id: str) -> int:
        """The pid of the runner that executed the run."""
        return int(str(self.row(run_id).lease_owner).split(":")[1])

    def tags(self, run_id: str) -> dict[str, str]:
        return {tag["key"]: tag["value"] for tag in self.run(run_id)["tags"]}

    def row(self, run_id: str) -> rows.Work:
        row = rows.find_by_run_id(self.engine, run_id)
        assert row is not None
        return row

    def until_closed(self, run_id: str) -> rows.Work:
        until(f"the row of {run_id} to be closed", lambda: self.row(run_id).status.is_final)
        return self.row(run_id)

    def messages(self, run_id: str) -> str:
        return "\n".join(event.get("message", "") for event in self.run(run_id)["eventConnection"]["events"])

    def terminate(self, run_id: str, policy: str = "SAFE_TERMINATE") -> str:
        """As the UI does; returns the type of the answer, and why it was refused."""
        answer: dict[str, str] = self.graphql(
            """mutation ($id: String!, $policy: TerminateRunPolicy!) {
                 terminateRun(runId: $id, terminatePolicy: $policy) {
                   __typename ... on TerminateRunFailure { message } } }""",
            id=run_id,
            policy=policy,
        )["terminateRun"]
        return " ".join(answer.values())

    def reload(self) -> str:
        answer: str = self.graphql(
            """mutation { reloadRepositoryLocation(repositoryLocationName: "platform") { __typename
                 ... on WorkspaceLocationEntry { locationOrLoadError { __typename } } } }"""
        )["reloadRepositoryLocation"]["locationOrLoadError"]["__typename"]
        return answer

    def _close(self) -> None:
        super()._close()
        self.engine.dispose()

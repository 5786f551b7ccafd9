"""Asks the code server for new definitions when rows changed from which they are built, such as published models.

Webserver and daemon watch the server and show what it has loaded. Nothing that executes waits for any of this.
"""

import logging
import threading
from datetime import UTC, datetime

import yaml
from dagster._api.list_repositories import sync_list_repositories_grpc
from dagster._core.errors import DagsterUserCodeProcessError, DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient
from sqlalchemy import Engine

from platform_defs.errors import PlatformError
from platform_defs.runner.fingerprint import rows_changed_at
from platform_defs.settings import Settings

# A load of many models is many commands: one reload follows the last of them.
QUIET_S = 2.0
AGAIN_S = 10.0
TIMEOUT_S = 180
_log = logging.getLogger(__name__)


class ReloadFailed(PlatformError):
    """The code server did not answer, or the definitions did not load in it."""


class CodeServer:
    """The code server that the workspace of `platform up` names; under another supervisor there is none to ask."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._workspace = settings.dagster_home / "workspace.yaml"
        self._engine = engine

    def may_be_behind(self) -> bool:
        """Whether a row changed since it was started: nobody may have told it."""
        if not self._workspace.exists():
            return False
        started = datetime.fromtimestamp(self._workspace.stat().st_mtime, UTC)
        changed = rows_changed_at(self._engine)
        return changed is not None and changed >= started

    def reload(self) -> None:
        """Returns when it serves the new definitions; what it served before goes on until then."""
        if not self._workspace.exists():
            return
        server = yaml.safe_load(self._workspace.read_text(encoding="utf-8"))["load_from"][0]["grpc_server"]
        client = DagsterGrpcClient(port=server["port"], host=server["host"])
        try:
            client.reload_code(timeout=TIMEOUT_S)
            # the answer to a reload says nothing of how it went
            sync_list_repositories_grpc(client)
        except DagsterUserCodeProcessError as error:
            raise ReloadFailed(_reason(error)) from None
        except DagsterUserCodeUnreachableError as error:
            raise ReloadFailed(f"the code server does not answer: {str(error).splitlines()[0]}") from None


class Reloads:
    """When to ask: once the rows are quiet, one reload at a time, again after a failure."""

    def __init__(self, server: CodeServer) -> None:
        self._server = server
        self._seen: str | None = None
        self._done: str | None = None
        self._not_before = 0.0
        self._asking: threading.Thread | None = None
        self._complaint: str | None = None

    def step(self, rows: str, now: float) -> None:
        """To be called often with what the rows are now; never waits for the code server."""
        if self._seen is None:
            self._done = None if self._server.may_be_behind() else rows
        if rows != self._seen:
            self._seen, self._not_before = rows, now + QUIET_S
        if rows == self._done or now < self._not_before or (self._asking is not None and self._asking.is_alive()):
            return
        self._not_before = now + AGAIN_S
        self._asking = threading.Thread(target=self._reload, args=(rows,), name="reload", daemon=True)
        self._asking.start()

    def _reload(self, rows: str) -> None:
        try:
            self._server.reload()
        except (PlatformError, OSError) as error:
            if str(error) != self._complaint:
                _log.error("the code server could not load what was published, and is asked again: %s", error)
            self._complaint = str(error)
        else:
            _log.info("the code server has loaded what was published")
            self._done, self._complaint = rows, None


def _reason(error: DagsterUserCodeProcessError) -> str:
    info = error.user_code_process_error_infos[0]
    while info.cause is not None:
        info = info.cause
    return info.message.strip().splitlines()[-1]

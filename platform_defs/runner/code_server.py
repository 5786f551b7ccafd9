"""Asks the code server to load new definitions after the rows changed from which they are built.

Webserver and daemon show the definitions that the code server has loaded. No run waits for the code server.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import yaml
from dagster._api.list_repositories import sync_list_repositories_grpc
from dagster._core.errors import DagsterUserCodeProcessError, DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient
from sqlalchemy import Engine

from platform_defs.errors import PlatformError, one_line
from platform_defs.runner.definitions_loader import LoadPace
from platform_defs.settings import Settings
from platform_defs.work.definition_versions import last_change

# How long the rows must not change before a reload: many models are published by many commands, one after the other.
QUIET_S = 2.0
# After a reload that failed: the pause before the next one, which sensors double up to the longest.
AGAIN_S = 10.0
LONGEST_AGAIN_S = 60.0
TIMEOUT_S = 180
_ASKING = threading.Lock()
_log = logging.getLogger(__name__)


class ReloadFailed(PlatformError):
    """The code server did not answer, or the definitions did not load in it."""


class DefinitionsDoNotLoad(ReloadFailed):
    """The new definitions do not load. The code server then serves none at all, and its sensors do not tick."""


class CodeServer:
    """The code server of `platform up`, as its workspace.yaml names it. Without that file there is none to ask."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._workspace = settings.dagster_home / "workspace.yaml"
        self._engine = engine

    def may_be_behind(self) -> bool:
        """Whether definition rows changed after the code server was started, so that it may need a reload."""
        if not self._workspace.exists():
            return False
        started = datetime.fromtimestamp(self._workspace.stat().st_mtime, UTC)
        changed = last_change(self._engine)
        return changed is not None and changed >= started

    def reload(self) -> None:
        """Returns once the code server serves the new definitions. Until then it goes on serving the old ones."""
        if not self._workspace.exists():
            return
        server = yaml.safe_load(self._workspace.read_text(encoding="utf-8"))["load_from"][0]["grpc_server"]
        client = DagsterGrpcClient(port=server["port"], host=server["host"])
        try:
            client.reload_code(timeout=TIMEOUT_S)
            # The answer to a reload does not say whether the definitions loaded.
            sync_list_repositories_grpc(client)
        except DagsterUserCodeProcessError as error:
            raise DefinitionsDoNotLoad(_innermost_message(error)) from None
        except DagsterUserCodeUnreachableError as error:
            raise ReloadFailed(f"the code server does not answer: {one_line(error)}") from None


class CodeServerReloads:
    """Asks for a reload once the rows have not changed for a while: one at a time, at a pace, again after a failure."""

    def __init__(self, server: CodeServer) -> None:
        self._server = server
        # Digests of the version counters: the last that were seen, and those that the code server has loaded.
        self._seen: str | None = None
        self._loaded: str | None = None
        self._not_before = 0.0
        self._pace = LoadPace()
        self._asking: threading.Thread | None = None
        # The last error, so that it is logged only once.
        self._complaint: str | None = None

    def step(self, digest: str, now: float) -> None:
        """To be called often, with the digest of the present version counters. Never waits for the code server."""
        if self._seen is None:
            self._loaded = None if self._server.may_be_behind() else digest
        if digest != self._seen:
            self._seen, self._not_before = digest, now + QUIET_S
        if digest == self._loaded or now < self._not_before or (self._asking is not None and self._asking.is_alive()):
            return
        # while the last reload failed the UI has no definitions at all
        if self._complaint is None and not self._pace.is_due(now):
            return
        self._pace.note_load(now)
        self._not_before = now + AGAIN_S
        self._asking = threading.Thread(target=self._reload, args=(digest,), name="reload", daemon=True)
        self._asking.start()

    def _reload(self, digest: str) -> None:
        try:
            self._server.reload()
        except (PlatformError, OSError) as error:
            if str(error) != self._complaint:
                _log.error("the code server could not load the new definitions, and is asked again: %s", error)
            self._complaint = str(error)
        else:
            _log.info("the code server has loaded the new definitions")
            self._loaded, self._complaint = digest, None


def request_reload(server: CodeServer, pause: Callable[[float], object] = time.sleep) -> None:
    """Asks in a thread until the definitions have loaded. For sensors, which tick in a process of the code server.

    Only one thread asks at a time. If the new definitions do not load, the code server ends this process and serves
    none, so that no sensor is left to ask again. The thread is no daemon and keeps this process alive until they load.
    """
    if _ASKING.acquire(blocking=False):
        threading.Thread(target=_until_loaded, args=(server, pause), name="reload", daemon=False).start()


def _until_loaded(server: CodeServer, pause: Callable[[float], object]) -> None:
    again_s = AGAIN_S
    try:
        while not _try_reload(server):
            pause(again_s)
            again_s = min(2 * again_s, LONGEST_AGAIN_S)
    except (PlatformError, OSError) as error:
        _log.error("the code server could not be asked for new definitions; the next tick asks again: %s", error)
    finally:
        _ASKING.release()


def _try_reload(server: CodeServer) -> bool:
    try:
        server.reload()
    except DefinitionsDoNotLoad as error:
        _log.error("the code server could not load the new definitions, and is asked again: %s", error)
        return False
    return True


def _innermost_message(error: DagsterUserCodeProcessError) -> str:
    info = error.user_code_process_error_infos[0]
    while info.cause is not None:
        info = info.cause
    return info.message.strip().splitlines()[-1]

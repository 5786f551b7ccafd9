"""Keeps a fork server with the newest definitions that load: changed ones are loaded in the background.

Every set of definitions has a fork server of its own. The current one starts all new runs. One may be loading. Retired
ones live on only until their last run has ended.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping

from platform_defs.logs import mask_secrets
from platform_defs.runner.fingerprint import Fingerprint
from platform_defs.runner.fork_server import ForkServer

# When definitions that did not load are tried again: perhaps only the database was away.
RETRY_FIRST_LOAD_S = 5.0
RETRY_RELOAD_S = 60.0
# Far longer than any load takes: code that waits for something while it is imported must not hold up newer code.
LONGEST_LOAD_S = 600.0
# A load keeps a processor busy for several seconds: see LoadPace.
LOAD_EVERY_S = 15.0
_log = logging.getLogger(__name__)


def may_execute(
    needed: Mapping[str, int], *, present: Fingerprint, loaded: Fingerprint | None, failed: Fingerprint | None
) -> bool:
    """Whether a run that needs these versions of definition rows may start with the loaded definitions.

    It may if the loaded definitions have the code that is on disk at present and are new enough. It also may if
    definitions that would be new enough were tried and do not load: then the loaded ones are the best there are.
    `failed` is the fingerprint of the last definitions that did not load.
    """
    # A counter can be needed higher than it is at present only after a restored backup; nothing newer can be loaded.
    needed = {name: min(version, present.versions.get(name, 0)) for name, version in needed.items()}
    return loaded is not None and any(
        known is not None and known.code == present.code and known.has_versions(needed) for known in (loaded, failed)
    )


class LoadPace:
    """When changed definition rows may be loaded: the first two changes at once, further ones every LOAD_EVERY_S.

    Without it, a processor would do nothing but load definitions for as long as somebody edits models or chains.
    """

    def __init__(self) -> None:
        # Every load moves this on by LOAD_EVERY_S. A load is due while it is at most that far in the future.
        self._spread_until = float("-inf")

    def is_due(self, now: float) -> bool:
        return self._spread_until - now <= LOAD_EVERY_S

    def note_load(self, now: float) -> None:
        self._spread_until = max(self._spread_until, now) + LOAD_EVERY_S


class DefinitionsLoader:
    """The fork servers of a runner. `listen` is called with each that is started, `stop_listening` before its end."""

    def __init__(
        self,
        listen: Callable[[ForkServer], None],
        stop_listening: Callable[[ForkServer], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.current: ForkServer | None = None
        # Why the newest definitions do not load, or None if they do.
        self.load_error: str | None = None
        self._loading: ForkServer | None = None
        self._loading_since = 0.0
        self._retired: list[ForkServer] = []
        self._failed: Fingerprint | None = None
        self._retry_at = 0.0
        self._pace = LoadPace()
        self._listen = listen
        self._stop_listening = stop_listening

    def load(self, present: Fingerprint, *, is_awaited: bool) -> None:
        """Starts to load the present definitions, unless they are loaded or a load is under way.

        A load that has begun is never given up for newer definitions: a run may wait for just what it loads. One that
        does not end counts as failed. Changed rows that no run waits for are loaded at a pace; changed code at once,
        since every run waits for it.
        """
        now = self._clock()
        if self._loading is not None and now - self._loading_since >= LONGEST_LOAD_S:
            hanging, self._loading = self._loading, None
            self.note_failure(hanging, f"loading did not end within {LONGEST_LOAD_S:.0f} s; does an import wait?")
            self._close(hanging)
        if self._loading is not None or (self.current is not None and self.current.fingerprint == present):
            return
        if present == self._failed and now < self._retry_at:
            return
        only_rows_changed = self.current is not None and self.current.fingerprint.code == present.code
        if only_rows_changed and not is_awaited and not self._pace.is_due(now):
            return
        self._pace.note_load(now)
        # The fingerprint was read before: what the fork server reads from now on is at least as new.
        self._loading, self._loading_since = ForkServer(present, dict(os.environ)), now
        self._listen(self._loading)

    def may_execute(self, needed: Mapping[str, int], present: Fingerprint) -> bool:
        loaded = None if self.current is None else self.current.fingerprint
        return may_execute(needed, present=present, loaded=loaded, failed=self._failed)

    def install(self, server: ForkServer, threads: int) -> None:
        """The fork server has loaded its definitions: new runs start there."""
        if self.current is not None:
            self._retired.append(self.current)
        self.current, self._loading = server, None
        self.load_error = self._failed = None
        _log.info("new runs use definitions %s, loaded in fork server %d", server.fingerprint.digest[:12], server.pid)
        if threads > 1:
            _log.warning("loading the definitions started %d threads: a fork copies none of them", threads - 1)

    def note_failure(self, server: ForkServer, reason: str) -> None:
        """The fork server could not load its definitions; its process ends by itself, which `lose` is told next."""
        reason = mask_secrets(reason)
        if reason != self.load_error:
            _log.error("the code location does not load: %s", reason)
        self.load_error, self._failed = reason, server.fingerprint
        self._retry_at = self._clock() + (RETRY_RELOAD_S if self.current else RETRY_FIRST_LOAD_S)

    def lose(self, server: ForkServer) -> bool:
        """The process of the fork server has ended. Returns False if the server was closed here a moment before."""
        if server is self.current:
            _log.error("fork server %d is gone; another one starts", server.pid)
            self.current = None
        elif server is self._loading:
            self._loading = None
        elif server in self._retired:
            self._retired.remove(server)
        else:
            return False
        self._close(server)
        return True

    def close_retired(self, in_use: Collection[ForkServer]) -> None:
        """Closes the retired fork servers that have no run left."""
        for server in [server for server in self._retired if server not in in_use]:
            self._retired.remove(server)
            self._close(server)

    def close_all(self) -> None:
        for server in [self.current, self._loading, *self._retired]:
            if server is not None:
                self._close(server)

    def _close(self, server: ForkServer) -> None:
        self._stop_listening(server)
        server.close()

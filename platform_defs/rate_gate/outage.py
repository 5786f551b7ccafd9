"""Whether the gate's database answers: one thread tries again now and then, the others do not wait for it."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from platform_defs.errors import one_line
from platform_defs.rate_gate.clock import Clock
from platform_defs.store.engine import is_transient
from platform_defs.store.errors import StoreUnavailable

T = TypeVar("T")

RETRY_S = 5.0

_logger = logging.getLogger(__name__)


class DatabaseSilent(Exception):
    """The gate has to decide by itself."""


class Outage:
    """Runs what needs the database, and remembers when the database did not answer."""

    def __init__(self, clock: Clock, *, on_return: Callable[[], None] = lambda: None) -> None:
        """`on_return` is called when the database answers for the first time after an outage."""
        self._clock = clock
        self._on_return = on_return
        self._lock = threading.Lock()
        self._retry_at: float | None = None

    def attempt(self, work: Callable[[], T]) -> T:
        """Raises DatabaseSilent if there is no answer. `work` must ask the database something, or it proves nothing."""
        with self._lock:
            if self._retry_at is not None:
                now = self._clock.monotonic()
                if now < self._retry_at:
                    raise DatabaseSilent
                self._retry_at = now + RETRY_S
        result = self._noticing(work)
        if self._end():
            # what was done is done: that the database falls silent again concerns the next one
            with suppress(DatabaseSilent):
                self._noticing(self._on_return)
        return result

    def _noticing(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (StoreUnavailable, DBAPIError, PoolTimeout) as error:
            if not isinstance(error, StoreUnavailable) and not is_transient(error):
                raise
            self._begin(error)
            raise DatabaseSilent from error

    def _begin(self, error: Exception) -> None:
        with self._lock:
            is_new, self._retry_at = self._retry_at is None, self._clock.monotonic() + RETRY_S
        if is_new:
            _logger.warning(
                "rate gate: the database is silent, each process keeps to a low rate of its own: %s", one_line(error)
            )

    def _end(self) -> bool:
        with self._lock:
            was_out, self._retry_at = self._retry_at is not None, None
        if was_out:
            _logger.info("rate gate: the database answers again, all processes share their rates again")
        return was_out

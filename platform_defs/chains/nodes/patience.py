"""Waits for the platform's own database: while it is away, an attempt of a node must not fail because of that."""

import logging
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from platform_defs.chains.nodes.port import NodeStopped, StopSignal
from platform_defs.errors import one_line
from platform_defs.store.engine import is_transient
from platform_defs.store.errors import StoreUnavailable

T = TypeVar("T")

PAUSE_S = 1.0
_log = logging.getLogger(__name__)


def patiently(stop: StopSignal, work: Callable[[], T]) -> T:
    """Does work that may be done twice, again and again until the database answers or the attempt must end.

    It has no time limit of its own: the drive of the run waits for the database too, and `timeoutSeconds` of the node
    ends the attempt through its stop signal.
    """
    is_told = False
    while True:
        try:
            return work()
        except (StoreUnavailable, DBAPIError, PoolTimeout) as error:
            if not isinstance(error, StoreUnavailable) and not is_transient(error):
                raise
            if not is_told:
                _log.warning("a node waits for the database: %s", one_line(error))
            is_told = True
        if stop.wait(PAUSE_S):
            raise NodeStopped(stop.reason)

"""The column `inputs` of the task log: the arrivals that count as read if the execution dies."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from platform_defs.arrivals.readiness import Versions


def inputs_of(versions: Versions) -> list[list[str]]:
    return [[name, written, arrival.isoformat()] for (name, written), arrival in sorted(versions.items())]


def versions_of(inputs: Sequence[Any] | None) -> Versions:
    """No versions for a task of an older release, which has no inputs: then all arrivals count as unread."""
    return {(name, written): datetime.fromisoformat(arrival) for name, written, arrival in inputs or ()}

"""A run that only waits gives its slot back: its process ends, and a later process goes on with the same Dagster run.

Whoever executes the run queues its row of work again (`leases.park`) and then yields an event with the marker. The
process of the runner hears it and ends without closing row or run.
"""

from collections.abc import Iterator

from dagster import DagsterEvent
from dagster._core.events import EngineEventData

MARKER = "platform/parked"
# Executions that were left in the middle. Were they collected as garbage, Dagster would report their runs as failed.
_LEFT: list[Iterator[DagsterEvent]] = []
_is_allowed = False


def allow() -> None:
    """Called in the process of one run of the runner: only there somebody goes on with a run that was left."""
    global _is_allowed
    _is_allowed = True


def is_allowed() -> bool:
    return _is_allowed


def leaves(event: DagsterEvent, execution: Iterator[DagsterEvent]) -> bool:
    """Whether the execution is to be left at this event."""
    data = event.event_specific_data
    if not isinstance(data, EngineEventData) or data.marker_end != MARKER:
        return False
    _LEFT.append(execution)
    return True

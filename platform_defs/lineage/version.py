"""Versions of events: (time, payload hash) as sortable text; the version is decided once, when the row is stored."""

from datetime import UTC, datetime, timedelta
from typing import NewType

# Sixteen hex digits of microseconds, then the first sixteen of a hash: text order is version order.
Version = NewType("Version", str)

# An event whose time is further ahead of its arrival than this is ordered by its arrival: a clock that is wrong by
# years must not win over all events of those years.
MAX_AHEAD = timedelta(days=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# added to the microseconds, so that they are positive for every time that an event can have
_SHIFT = 1 << 62


def version_of(time: datetime, hash: str) -> Version:
    micros = (time - _EPOCH) // timedelta(microseconds=1)
    return Version(f"{micros + _SHIFT:016x}{hash[:16]}")


def time_of(version: Version) -> datetime:
    return _EPOCH + timedelta(microseconds=int(version[:16], 16) - _SHIFT)


def is_ahead(event_time: datetime, arrival: datetime) -> bool:
    """Whether the event says that it happens so far in the future that its time cannot be believed."""
    return event_time > arrival + MAX_AHEAD


def version_at_arrival(event_time: datetime, arrival: datetime, payload_hash: str) -> Version:
    return version_of(arrival if is_ahead(event_time, arrival) else event_time, payload_hash)

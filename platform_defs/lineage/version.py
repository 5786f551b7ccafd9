"""Versions of events: (eventTime, fingerprint) as sortable text, a total order that every process computes alike."""

from datetime import UTC, datetime, timedelta
from typing import NewType

# Sixteen hex digits of microseconds, then the first sixteen of the fingerprint: text order is version order.
Version = NewType("Version", str)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# added to the microseconds, so that they are positive for every time that an event can have
_SHIFT = 1 << 62


def version_of(event_time: datetime, fingerprint: str) -> Version:
    micros = (event_time - _EPOCH) // timedelta(microseconds=1)
    return Version(f"{micros + _SHIFT:016x}{fingerprint[:16]}")


def time_of(version: Version) -> datetime:
    return _EPOCH + timedelta(microseconds=int(version[:16], 16) - _SHIFT)

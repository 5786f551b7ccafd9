"""Versions: every fact carries its event's (eventTime, fingerprint), a total order that all replicas agree on."""

from datetime import UTC, datetime, timedelta
from typing import NewType

# Text that sorts as the versions do: sixteen hex digits of microseconds, then the fingerprint's first sixteen.
Version = NewType("Version", str)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# before every time that an event may carry (year 1), so that no version is negative
_SHIFT = 1 << 62

ZERO = Version("0" * 32)


def version_of(event_time: datetime, fingerprint: str) -> Version:
    micros = (event_time - _EPOCH) // timedelta(microseconds=1)
    return Version(f"{micros + _SHIFT:016x}{fingerprint[:16]}")


def time_of(version: Version) -> datetime:
    return _EPOCH + timedelta(microseconds=int(version[:16], 16) - _SHIFT)

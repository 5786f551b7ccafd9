"""What a source said about its limits: status, Retry-After and the rate headers in all their spellings."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

# numbers above are an instant (seconds or milliseconds since 1970), numbers below a duration
_EPOCH_SECONDS = 10**9
_EPOCH_MILLIS = 10**11
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(ms|sec|s|min|m|h|d)?\s*")
# "100", "100, 100;w=60": the first number, and the window in seconds if it is named
_COUNT = re.compile(r"\s*(\d{1,12})(?:\.\d+)?\s*(?:$|[,;])")
_WINDOW = re.compile(r";\s*w=(\d{1,9})")


class Outcome(StrEnum):
    OK = "OK"
    # 429, or a body that says as much
    RATE_LIMITED = "RATE_LIMITED"
    # 5xx: the source is in trouble and is called less often
    TRANSIENT = "TRANSIENT"
    # no answer at all: says nothing about the rate
    NO_ANSWER = "NO_ANSWER"
    # an answer that says nothing about rate or health, such as 404
    OTHER = "OTHER"


@dataclass(frozen=True)
class Limits:
    """What the rate headers say; durations in seconds, None where a header is absent or unreadable."""

    retry_after_s: float | None = None
    limit: int | None = None
    interval_s: float | None = None
    remaining: int | None = None
    reset_s: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True)
class Signal:
    """The outcome of one request; `age_s` is how long ago it was sent."""

    outcome: Outcome
    limits: Limits = Limits()
    age_s: float = 0.0


def signal_from(
    status: int | None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *,
    now: datetime,
    age_s: float = 0.0,
    outcome: Outcome | None = None,
) -> Signal:
    """The signal of a response; without a status there was none. `outcome` overrides what the status says."""
    return Signal(outcome or outcome_of(status), read_limits(status, headers, now=now), age_s)


def outcome_of(status: int | None) -> Outcome:
    if status is None:
        return Outcome.NO_ANSWER
    if status == 429:
        return Outcome.RATE_LIMITED
    if status >= 500:
        return Outcome.TRANSIENT
    return Outcome.OK if status < 400 else Outcome.OTHER


def read_limits(status: int | None, headers: Mapping[str, str] | Iterable[tuple[str, str]], *, now: datetime) -> Limits:
    """Sources write X-RateLimit-Limit, x-rate-limit-limit or RateLimit-Limit: case, `x-` and hyphens do not count."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = {_normal_name(name): value for name, value in pairs}
    # an instant is compared with the source's own clock if it tells the time, which takes long to read
    names_instants = "retryafter" in found or "ratelimitreset" in found
    their_now = (_http_date(found.get("date", "")) if names_instants else None) or now
    limit_text = found.get("ratelimitlimit", "")
    window = _WINDOW.search(limit_text)
    interval_s = _duration(found.get("ratelimitinterval", ""))
    return Limits(
        retry_after_s=_retry_after(found.get("retryafter", ""), their_now) if (status or 0) >= 400 else None,
        limit=_count(limit_text),
        interval_s=float(window.group(1)) if interval_s is None and window else interval_s,
        remaining=_count(found.get("ratelimitremaining", "")),
        reset_s=_reset(found.get("ratelimitreset", ""), their_now),
        concurrency=_count(found.get("concurrencylimit", "")),
    )


def _normal_name(name: str) -> str:
    return name.lower().removeprefix("x-").replace("-", "")


def _count(text: str) -> int | None:
    match = _COUNT.match(text)
    return int(match.group(1)) if match else None


def _duration(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    seconds = float(match.group(1)) * _UNITS[match.group(2) or ""]
    return seconds if seconds > 0 else None


def _retry_after(text: str, their_now: datetime) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is not None and match.group(2) is None:
        return float(match.group(1))
    return _seconds_until(_http_date(text), their_now)


def _reset(text: str, their_now: datetime) -> float | None:
    """Seconds from now, seconds since 1970, milliseconds since 1970 or a date: all of them are in use."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return _seconds_until(_http_date(text), their_now)
    number = float(match.group(1))
    if match.group(2) is None and number >= _EPOCH_SECONDS:
        seconds = number / 1000 if number >= _EPOCH_MILLIS else number
        return max(0.0, seconds - their_now.timestamp())
    return number * _UNITS[match.group(2) or ""]


def _seconds_until(moment: datetime | None, their_now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - their_now).total_seconds())


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment

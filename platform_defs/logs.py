"""Logs: JSON lines with the id of the request for programs, short lines for a terminal; secrets are masked in both."""

import json
import logging
import math
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

request_id: ContextVar[str] = ContextVar("request_id", default="")

MASK = "***"
_REMEMBERED_LINES = 1000
_SECRET_NAMES = re.compile(r"(?i)authorization|assertion|password|passwd|secret|token|api[_-]?key")
_SECRETS = (
    # The platform's own keys. The public id stays readable, so that an operator can tell which key it was.
    (re.compile(r"\bpk_([0-9a-f]{16})_[0-9A-Za-z_-]+"), rf"pk_\1_{MASK}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+(\.[\w-]*)?"), MASK),
    (re.compile(r"(://[^/\s:@]*:)[^/\s]*@"), rf"\1{MASK}@"),
    (
        re.compile(
            r"(?i)((?:authorization|x-api-key|x-gateway-assertion)[\"']?\s*[:=,]\s*(?:b(?=[\"']))?[\"']?)"
            r"(?:(?:bearer|basic)\s+)?[^\s\"',;]+"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)[^\s\"',;]{12,}"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b((?:password|passwd|secret|token|api_?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;)]+"), rf"\1{MASK}"),
)
# Every pattern above contains one of these. Most lines have none: checking this first makes them four times cheaper.
_HINTS = (
    "pk_",
    "eyj",
    "://",
    "bearer",
    "basic",
    "authorization",
    "assertion",
    "passw",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


def configure_logging(level: str = "INFO", stream: TextIO | None = None, form: str = "") -> None:
    """Sends every logger of this process through one formatter, uvicorn's included.

    `form` is `json`, `human`, or empty: then a terminal gets lines for people, and anything else JSON.
    """
    stream = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(stream)
    human = form == "human" or (not form and stream.isatty())
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # httpx logs whole URLs at INFO, and a URL may contain a key. The others repeat what the platform logs itself.
    for name in ("httpx", "httpcore", "neo4j", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def format_unconfigured(form: str = "") -> None:
    """In a process whose logging nobody configures, such as Dagster's code server, warnings have time and level too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(JsonFormatter() if form == "json" else HumanFormatter())


def mask_secrets(text: str) -> str:
    """The text with keys, tokens and passwords replaced by `***`."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger, message, requestId and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := request_id.get():
            line["requestId"] = current
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return json.dumps(_mask_in_value(json.loads(text)), ensure_ascii=False) if _may_hold_secret(text) else text


class HumanFormatter(logging.Formatter):
    """Writes time, level unless it is INFO, message, and those fields with a value that the message lacks.

    The time is local, because Dagster's lines beside it on the terminal are.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        words = [f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S}"]
        if record.levelno != logging.INFO:
            words.append(record.levelname)
        words.append(message)
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        fields = fields if not _may_hold_secret(str(fields)) else _mask_in_value(fields)
        words += [
            f"{name}={value}"
            for name, value in fields.items()
            if value is not None and str(value) not in message.split()
        ]
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return mask_secrets(line) if _may_hold_secret(line) else line


class SparseLog:
    """Writes a line that comes again and again once a minute, and says how often it came meanwhile.

    For loops that go on while the database is away: they fail in the same way every second, perhaps for hours.
    """

    def __init__(
        self, logger: logging.Logger, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        # line -> when it was written, and how often it came since; the one that came last is the last
        self._lines: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def write(self, level: int, line: str, **options: Any) -> None:
        """`options` are those of `logging.Logger.log`."""
        with self._lock:
            now = self._clock()
            written_at, left_out = self._lines.pop(line, (-math.inf, 0))
            is_due = now - written_at >= self._every_s
            self._lines[line] = (now, 0) if is_due else (written_at, left_out + 1)
            if len(self._lines) > _REMEMBERED_LINES:
                self._lines.popitem(last=False)
        if is_due:
            times = f" ({left_out} times more since this was logged last)" if left_out else ""
            self._logger.log(level, "%s%s", line, times, **options)


def _may_hold_secret(text: str) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def _mask_in_value(value: Any) -> Any:
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {
            key: MASK if isinstance(key, str) and _SECRET_NAMES.search(key) else _mask_in_value(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_mask_in_value(item) for item in value]
    return value

"""Structured logs: one JSON object per line, with the request id in each and secrets masked in all of it."""

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

request_id: ContextVar[str] = ContextVar("request_id", default="")

MASK = "***"
_SECRET_NAMES = re.compile(r"(?i)authorization|assertion|password|passwd|secret|token|api[_-]?key")
_SECRETS = (
    # our own keys: the public id stays, so that an operator can tell which key it was
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
# Every pattern above needs one of these: looking for them first makes an ordinary line four times cheaper.
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


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends every logger of this process through the JSON formatter, uvicorn's included."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # httpx logs whole URLs at INFO, and a URL may carry a key; the others tell nothing that we do not
    for name in ("httpx", "httpcore", "neo4j", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def mask(text: str) -> str:
    """The text without what must not be read later: keys, tokens, passwords in URLs."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, requestId and whatever `extra` adds."""

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
        return json.dumps(_masked(json.loads(text)), ensure_ascii=False) if _may_hold_secret(text) else text


def _may_hold_secret(text: str) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {
            key: MASK if isinstance(key, str) and _SECRET_NAMES.search(key) else _masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return value

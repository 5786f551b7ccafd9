"""Trouble on request: which of the next answers go wrong, and how."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson

from platform_defs.demo_source.answers import Answer


class TroubleKind(StrEnum):
    TOO_MANY = "too_many"  # 429 with Retry-After
    ERROR = "error"  # 500
    SLOW = "slow"  # the answer comes `seconds` later
    HOLD = "hold"  # the answer is held back until the next control request
    TRUNCATED = "truncated"  # half of the JSON, with its true length: the connection is fine
    REPEATED_PAGE = "repeated_page"  # the answer before this one, once more
    CHANGED_ORDER = "changed_order"  # the items of the page the other way round
    SHORT_PAGE = "short_page"  # the page lacks its last items, although its total counts them
    NEXT_URL = "next_url"  # Crossref's message names a `next-url` on `origin`
    EXPIRED_CURSOR = "expired_cursor"  # every open cursor is forgotten
    BAD_ID = "bad_id"  # requests that name `id` are refused
    RATE_LIMIT_IN_BODY = "rate_limit_in_body"  # PubMed's rate limit with status 200


@dataclass
class Trouble:
    """Changes answers to requests whose path and query contain the given texts: `skip` of them pass, then `times`."""

    kind: TroubleKind
    times: int = 1
    skip: int = 0
    path: str = ""
    query: str = ""
    seconds: float = 0.0
    retry_after: str = "1"
    id: str = ""
    origin: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Trouble":
        return cls(**{**document, "kind": TroubleKind(document["kind"])})

    def concerns(self, path: str, query: str) -> bool:
        if self.path not in path or self.query not in query or (self.id and self.id not in query):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times == 0:
            return False
        self.times -= 1
        return True


@dataclass
class Troubles:
    _open: list[Trouble] = field(default_factory=list)
    _released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, trouble: Trouble) -> None:
        with self._lock:
            self._open.append(trouble)

    def release(self) -> None:
        """Answers that are held back go out; later ones are held back again."""
        with self._lock:
            self._released.set()
            self._released = threading.Event()

    def clear(self) -> None:
        with self._lock:
            self._open.clear()
        self.release()

    def of_request(self, path: str, query: str) -> list[Trouble]:
        with self._lock:
            return [trouble for trouble in self._open if trouble.concerns(path, query)]

    def next_release(self) -> threading.Event:
        with self._lock:
            return self._released


def changed_answer(trouble: Trouble, answer: Answer, before: Answer | None) -> Answer:
    """The answer as the trouble leaves it."""
    match trouble.kind:
        case TroubleKind.TOO_MANY:
            return Answer(429, b"", "text/html", {"Retry-After": trouble.retry_after})
        case TroubleKind.ERROR:
            return Answer(500, b"<html><body>Internal Server Error</body></html>", "text/html")
        case TroubleKind.TRUNCATED:
            return replace(answer, body=answer.body[: len(answer.body) // 2])
        case TroubleKind.REPEATED_PAGE:
            return answer if before is None else before
        case TroubleKind.CHANGED_ORDER:
            return _with_items(answer, lambda items: items[::-1])
        case TroubleKind.SHORT_PAGE:
            return _with_items(answer, lambda items: items[: len(items) - 1 - len(items) // 10])
        case TroubleKind.NEXT_URL:
            document = orjson.loads(answer.body)
            cursor = document["message"].get("next-cursor", "")
            document["message"]["next-url"] = f"{trouble.origin}/works?rows=20&cursor={cursor}"
            return replace(answer, body=orjson.dumps(document))
        case TroubleKind.BAD_ID:
            return Answer(400, orjson.dumps({"error": f"bad id {trouble.id}"}))
        case TroubleKind.RATE_LIMIT_IN_BODY:
            return Answer(200, orjson.dumps({"error": "API rate limit exceeded", "count": "4", "limit": "3"}))
        case TroubleKind.SLOW | TroubleKind.HOLD | TroubleKind.EXPIRED_CURSOR:
            return answer


def _with_items(answer: Answer, change: Callable[[list[Any]], list[Any]]) -> Answer:
    document = orjson.loads(answer.body)
    for holder, name in ((document.get("message"), "items"), (document.get("esearchresult"), "idlist")):
        if holder and name in holder:
            holder[name] = change(holder[name])
    return replace(answer, body=orjson.dumps(document))

"""The demo source over HTTP: routes, rate limit, trouble, and a record of every request."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from platform_defs.demo_source import crossref, pubmed
from platform_defs.demo_source.answers import Answer, json_answer
from platform_defs.demo_source.catalogue import Catalogue
from platform_defs.demo_source.crossref import Crossref
from platform_defs.demo_source.trouble import Trouble, TroubleKind, Troubles, changed_answer

CONTROL, REQUESTS, RECORDS = "/_control", "/_requests", "/_records"
LONGEST_HOLD_S = 600


@dataclass(frozen=True)
class DemoSettings:
    """`now` stops the source's clock; without a rate every request is answered."""

    records: int = 6000
    seed: int = 1
    now: datetime | None = None
    rate_per_s: float | None = None
    burst: int = 5
    latency_s: float = 0.0
    pubmed_cap: int = pubmed.RESULT_CAP
    cursor_keeps_place: bool = True
    # the day of which lists of works lack some, until a control request resets it
    short_day: date | None = None


@dataclass(frozen=True)
class SeenRequest:
    path: str
    query: str
    status: int
    # names alone: tests ask whether a credential came, never which
    headers: tuple[str, ...]


@dataclass
class TokenBucket:
    """The source's own limit, for all of its clients together."""

    rate_per_s: float
    burst: int
    _tokens: float = field(init=False)
    _filled: float = field(default_factory=time.monotonic, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self.burst, self._tokens + (now - self._filled) * self.rate_per_s)
            self._filled = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class DemoSource:
    """Answers requests; knows nothing of sockets."""

    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.catalogue = Catalogue(settings.records, settings.seed, self._clock)
        # the life of cursors is real time, also where the records' clock stands
        self._crossref = Crossref(self.catalogue, lambda: datetime.now(UTC), settings.cursor_keeps_place)
        self._bucket = None if settings.rate_per_s is None else TokenBucket(settings.rate_per_s, settings.burst)
        self._troubles = Troubles()
        if settings.short_day is not None:
            day = settings.short_day.isoformat()
            self._troubles.add(Trouble(TroubleKind.SHORT_PAGE, times=-1, path=crossref.WORKS, query=day))
        self._seen: list[SeenRequest] = []
        self._before: dict[str, Answer] = {}
        self._held = 0
        self._lock = threading.Lock()

    def _clock(self) -> datetime:
        return self.settings.now or datetime.now(UTC)

    def answer(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(target)
        match parts.path:
            case path if path == CONTROL and method == "POST":
                return self._control(orjson.loads(body))
            case path if path == REQUESTS:
                return self._list_requests()
            case path if path == RECORDS:
                return self._list_records(dict(parse_qsl(parts.query)))
        query = parts.query if method == "GET" else body.decode()
        answer = self._troubled(parts.path, query, len(target))
        with self._lock:
            self._seen.append(SeenRequest(parts.path, query, answer.status, tuple(sorted(map(str.lower, headers)))))
        return answer

    def _troubled(self, path: str, query: str, url_length: int) -> Answer:
        if self._bucket is not None and not self._bucket.take():
            limit = round(self._bucket.rate_per_s)
            return crossref.rate_limited() if path == crossref.WORKS else pubmed.rate_limited(limit)
        time.sleep(self.settings.latency_s)
        troubles = self._troubles.of_request(path, query)
        if any(trouble.kind is TroubleKind.EXPIRED_CURSOR for trouble in troubles):
            self._crossref.forget_cursors()
        if refusal := next((trouble for trouble in troubles if trouble.kind is TroubleKind.TOO_MANY), None):
            return changed_answer(refusal, Answer(429, b""), None)
        good = answer = self._route(path, dict(parse_qsl(query)), url_length)
        for trouble in troubles:
            answer = changed_answer(trouble, answer, self._before.get(path))
        self._before[path] = good
        for trouble in troubles:
            time.sleep(trouble.seconds)
            if trouble.kind is TroubleKind.HOLD:
                self._hold()
        return answer

    def _hold(self) -> None:
        released = self._troubles.next_release()
        with self._lock:
            self._held += 1
        released.wait(LONGEST_HOLD_S)
        with self._lock:
            self._held -= 1

    def _route(self, path: str, params: Mapping[str, str], url_length: int) -> Answer:
        if url_length > pubmed.LONGEST_URL and path != crossref.WORKS:
            return pubmed.url_too_long()
        match path:
            case pubmed.ESEARCH:
                return pubmed.esearch(self.catalogue, params, self.settings.pubmed_cap)
            case pubmed.ESUMMARY:
                return pubmed.esummary(self.catalogue, params)
            case crossref.WORKS:
                answer = self._crossref.works(params)
                limit = round(self.settings.rate_per_s or 50)
                return Answer(answer.status, answer.body, answer.content_type, crossref.headers(params, limit))
        return Answer(404, b"Resource not found.", "text/plain")

    def _control(self, document: Mapping[str, Any]) -> Answer:
        """`trouble`, `late` (times of records to add), `release`, `reset` (troubles) or `forget` (requests seen)."""
        added = []
        if document.get("reset"):
            self._troubles.clear()
        if document.get("release"):
            self._troubles.release()
        if document.get("forget"):
            with self._lock:
                self._seen.clear()
        for trouble in document.get("trouble", []):
            self._troubles.add(Trouble.of(trouble))
        if late := document.get("late"):
            added = self.catalogue.add_late([read_moment(text) for text in late])
        return json_answer({"added": [{"pmid": work.pmid, "doi": work.doi} for work in added]})

    def _list_requests(self) -> Answer:
        with self._lock:
            seen = list(self._seen)
        document = {
            "total": len(seen),
            "byPath": Counter(request.path for request in seen),
            "byStatus": {str(status): count for status, count in Counter(each.status for each in seen).items()},
            # answers that are held back now; their requests are not yet among those seen
            "held": self._held,
            "requests": [vars(request) for request in seen],
        }
        return json_answer(document)

    def _list_records(self, params: Mapping[str, str]) -> Answer:
        """What a complete harvest of [from, to) has: the truth that tests compare with."""
        works = self.catalogue.changed_between(read_moment(params["from"]), read_moment(params["to"]))
        rows = [{"pmid": work.pmid, "doi": work.doi, "changed": work.changed.isoformat()} for work in works]
        return json_answer(rows)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    answer: Callable[[str, str, bytes, Mapping[str, str]], Answer]

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        self._respond(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _respond(self, body: bytes) -> None:
        answer = type(self).answer(self.command, self.path, body, dict(self.headers))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are listed at /_requests instead."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, as killed ones do, is nothing to report; anything else is a fault."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def open_server(settings: DemoSettings, host: str = "127.0.0.1", port: int = 0) -> tuple[_Server, str]:
    """A server that is bound but not yet serving, and its address."""
    source = DemoSource(settings)
    handler = type("Handler", (_Handler,), {"answer": staticmethod(source.answer)})
    server = _Server((host, port), handler)
    return server, f"http://{host}:{server.server_address[1]}"


@contextmanager
def running_server(settings: DemoSettings) -> Iterator[str]:
    """Serves in a thread of this process; gives the address."""
    server, url = open_server(settings)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read_moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment

"""Crossref's REST API: lists of works by index date, paged by a cursor whose place only the source knows."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from platform_defs.demo_source.answers import Answer, json_answer
from platform_defs.demo_source.catalogue import Catalogue, Work
from platform_defs.demo_source.wording import Wording

WORKS = "/works"
MOST_ROWS = 1000
CURSOR_LIFE = timedelta(minutes=5)
# Scrolls that are kept open at a time; the oldest is forgotten first.
MOST_SCROLLS = 1000
_ALWAYS = (datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))


@dataclass
class Scroll:
    """A result that is being paged through; every request with its cursor gets the page after the one before."""

    works: Sequence[Work]
    rows: int
    used: datetime
    place: int = 0


@dataclass
class Crossref:
    """With `keeps_place` (as recorded) the cursor stays the same from page to page and the source counts the pages.

    A page that was sent and lost cannot be asked for again then. Without it every page has a cursor of its own.
    """

    catalogue: Catalogue
    clock: Callable[[], datetime]
    keeps_place: bool = True
    _scrolls: OrderedDict[str, Scroll] = field(default_factory=OrderedDict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def works(self, params: Mapping[str, str]) -> Answer:
        rows = params.get("rows", "20")
        if not rows.isdecimal() or int(rows) > MOST_ROWS:
            return _validation_failure("integer-not-valid", rows, f"must be a positive integer up to {MOST_ROWS}")
        try:
            find = self._filter(params.get("filter", ""))
        except ValueError as error:
            return _validation_failure("filter-not-available", params.get("filter", ""), str(error))
        cursor = params.get("cursor")
        if cursor is None:
            offset = params.get("offset", "0")
            start = int(offset) if offset.isdecimal() else 0
            found = find()
            return _work_list(found[start : start + int(rows)], len(found), int(rows), None)
        with self._lock:
            return self._page(cursor, int(rows), find)

    def forget_cursors(self) -> None:
        with self._lock:
            self._scrolls.clear()

    def _page(self, cursor: str, rows: int, find: Callable[[], list[Work]]) -> Answer:
        now = self.clock()
        name, _, place = cursor.partition(".")
        if cursor == "*":
            name, place = f"DnF1ZXJ5VGhlbkZldGNo{uuid.uuid4().hex}", ""
            self._scrolls[name] = Scroll(find(), rows, now)
            while len(self._scrolls) > MOST_SCROLLS:
                self._scrolls.popitem(last=False)
        scroll = self._scrolls.get(name)
        if scroll is None or now - scroll.used > CURSOR_LIFE:
            return Answer(404, b"Resource not found.", "text/plain")
        start = scroll.place if self.keeps_place or not place else int(place)
        page = scroll.works[start : start + rows]
        scroll.used, scroll.place = now, start + rows
        # a cursor is named also behind the last page
        following = name if self.keeps_place else f"{name}.{start + rows}"
        return _work_list(page, len(scroll.works), rows, following)

    def _filter(self, text: str) -> Callable[[], list[Work]]:
        """Filters of one name are alternatives, those of different names all hold."""
        start, end = _ALWAYS
        dois: list[str] = []
        for part in filter(None, text.split(",")):
            name, _, value = part.partition(":")
            match name:
                case "from-index-date":
                    start = _bounds(value)[0]
                case "until-index-date":
                    end = _bounds(value)[1]
                case "doi":
                    dois.append(value)
                case _:
                    raise ValueError(f"Filter {name} specified but there is no such filter for this route.")
        if not dois:
            return lambda: self.catalogue.changed_between(start, end)
        known = [work for work in map(self.catalogue.by_doi, dict.fromkeys(dois)) if work is not None]
        return lambda: [work for work in known if start <= work.changed < end]


def rate_limited() -> Answer:
    """HTML, and none of the headers that name the limit."""
    body = b"<html><body><h1>429 Too Many Requests</h1>\nYou have sent too many requests in a given amount of time.\n"
    return Answer(429, body + b"</body></html>\n", "text/html")


def headers(params: Mapping[str, str], limit: int) -> dict[str, str]:
    """A request that names a mail address is answered by the polite pool."""
    return {
        "x-api-pool": "polite" if params.get("mailto") else "public",
        "x-rate-limit-limit": str(limit),
        "x-rate-limit-interval": "1s",
        "x-concurrency-limit": "3",
    }


def item(work: Work) -> dict[str, Any]:
    wording = Wording(work.number)
    created = work.created
    return {
        "indexed": {**_moment(work.changed), "version": "3.41.2"},
        "reference-count": wording.cited_by % 50,
        "publisher": "Demonstration Press",
        "issue": wording.issue,
        "license": [
            {
                "start": _moment(created),
                "content-version": "vor",
                "delay-in-days": 0,
                "URL": "https://creativecommons.org/licenses/by/4.0/",
            }
        ],
        "content-domain": {"domain": [], "crossmark-restriction": False},
        "short-container-title": [wording.journal[:12]],
        "DOI": work.doi,
        "type": "journal-article",
        "created": _moment(created),
        "page": f"{wording.first_page}-{wording.first_page + 9}",
        "source": "Crossref",
        "is-referenced-by-count": wording.cited_by,
        "title": [wording.title],
        "prefix": "10.5555",
        "volume": wording.volume,
        "author": [
            {"given": given, "family": family, "sequence": "additional" if place else "first", "affiliation": []}
            for place, (given, family) in enumerate(wording.authors)
        ],
        "member": "7822",
        "container-title": [wording.journal],
        "abstract": f"<jats:p>{wording.abstract}</jats:p>",
        "language": "en",
        "deposited": _moment(created),
        "score": 0.0,
        "resource": {"primary": {"URL": f"https://demo.test/{work.number}"}},
        # the month alone, as many publishers deposit it
        "issued": {"date-parts": [[created.year, created.month]]},
        "references-count": wording.cited_by % 50,
        "URL": f"https://doi.org/{work.doi}",
        "ISSN": ["2379-5042"],
        "published": {"date-parts": [[created.year, created.month]]},
    }


@lru_cache(maxsize=60_000)
def _item_json(work: Work) -> bytes:
    return orjson.dumps(item(work))


def _work_list(page: Sequence[Work], total: int, rows: int, cursor: str | None) -> Answer:
    """Items are written once and joined: the source must not be what a bench measures."""
    message: dict[str, Any] = {"facets": {}}
    if cursor is not None:
        message["next-cursor"] = cursor
    message["total-results"] = total
    message["items"] = [orjson.Fragment(_item_json(work)) for work in page]
    message |= {"items-per-page": rows, "query": {"start-index": 0, "search-terms": None}}
    envelope = {"status": "ok", "message-type": "work-list", "message-version": "1.0.0", "message": message}
    return json_answer(envelope)


def _validation_failure(kind: str, value: str, text: str) -> Answer:
    message = [{"type": kind, "value": value, "message": text}]
    return json_answer({"status": "failed", "message-type": "validation-failure", "message": message}, 400)


def _bounds(text: str) -> tuple[datetime, datetime]:
    """The first moment of a day or a second, and the first one after it: both ends of a filter are included."""
    size = timedelta(days=1) if len(text) == len("2026-11-17") else timedelta(seconds=1)
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment, moment + size


def _moment(at: datetime) -> dict[str, Any]:
    return {
        "date-parts": [[at.year, at.month, at.day]],
        "date-time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "timestamp": int(at.timestamp() * 1000),
    }

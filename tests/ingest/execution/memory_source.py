"""A source that lives in the test: pages over records, filtered by time as a real one does, every request counted."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from platform_defs.ingest.codes import ErrorLevel, PaginationType
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.fetching.source import Fetched
from platform_defs.ingest.spec.model import CallSpec, PaginationSpec
from platform_defs.ingest.spec.snapshot import instant_text


@dataclass
class MemorySource:
    """`items` have id and updated; `trouble` is asked before each request and may raise."""

    pagination: PaginationSpec
    items: list[dict[str, Any]]
    trouble: Any = lambda number: None
    bad_ids: Sequence[str] = ()
    requests: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(
        self, call: CallSpec, names: Mapping[str, Any], *, url: str | None = None, cancel: threading.Event
    ) -> Fetched:
        with self._lock:
            self.requests.append((url or call.endpoint_name, names))
            number = len(self.requests)
        self.trouble(number)
        if "ids" in names:
            return Fetched(self._by_ids(names["ids"]))
        document = self._page(names, url)
        return Fetched(document, request_digest={"endpoint": call.endpoint_name}, counts={"latencyMs": 1})

    def _by_ids(self, ids: Sequence[str]) -> dict[str, Any]:
        if any(each in self.bad_ids for each in ids):
            raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "a bad id")
        return {"items": [item for item in self.items if item["id"] in ids]}

    def _page(self, names: Mapping[str, Any], url: str | None) -> dict[str, Any]:
        size = self.pagination.page_size or 100
        found = self._matching(names)
        start = self._start(names, url, size)
        page = found[start : start + size]
        document = {"items": page, "total": len(found)}
        behind = start + size
        if self.pagination.type is PaginationType.TOKEN and behind < len(found) + size:
            document["next"] = str(behind)
        if self.pagination.type is PaginationType.URL and behind < len(found):
            document["next"] = f"https://source.test/items?start={behind}"
        return document

    def _start(self, names: Mapping[str, Any], url: str | None, size: int) -> int:
        match self.pagination.type:
            case PaginationType.OFFSET:
                return int(names["page"]["offset"])
            case PaginationType.PAGE:
                return (int(names["page"]["page"]) - (1 if self.pagination.base1 else 0)) * size
            case PaginationType.TOKEN:
                return int(names["page"]["token"] or 0)
            case PaginationType.URL:
                return 0 if url is None else int(url.rpartition("=")[2])
            case PaginationType.TIME:
                return 0

    def _matching(self, names: Mapping[str, Any]) -> list[dict[str, Any]]:
        start, end = names["window"]["from"], names["window"]["to"]
        # inclusive at its end, as most sources are: the executor has to filter once more
        found = [item for item in self.items if start <= _time(item) <= end]
        if names.get("idRange"):
            low, high = names["idRange"]["from"], names["idRange"]["to"]
            found = [item for item in found if low <= int(item["id"]) <= high]
        return sorted(found, key=_time) if self.pagination.type is PaginationType.TIME else found


def item(number: int, updated: datetime, **more: Any) -> dict[str, Any]:
    return {"id": str(number), "updated": instant_text(updated), **more}


def _time(found: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(found["updated"]).astimezone(UTC)

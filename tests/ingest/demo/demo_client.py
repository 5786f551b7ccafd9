"""Talks to a demo source in tests: its truth, its trouble, and what it saw."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from tests import loopback


@dataclass(frozen=True)
class DemoClient:
    url: str

    def get(self, path: str, **params: Any) -> httpx.Response:
        return loopback.get(f"{self.url}{path}", params=params)

    def control(self, **document: Any) -> dict[str, Any]:
        told = loopback.post(f"{self.url}/_control", json=document).raise_for_status()
        answer: dict[str, Any] = told.json()
        return answer

    def make_trouble(self, kind: str, **more: Any) -> None:
        self.control(trouble=[{"kind": kind, **more}])

    def requests(self) -> dict[str, Any]:
        seen: dict[str, Any] = self.get("/_requests").json()
        return seen

    def records(self, start: datetime, end: datetime) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.get("/_records", **{"from": start.isoformat(), "to": end.isoformat()}).json()
        return found

    def esearch(self, **params: Any) -> httpx.Response:
        return self.get("/entrez/eutils/esearch.fcgi", **{"db": "pubmed", "retmode": "json", **params})

    def works(self, **params: Any) -> Mapping[str, Any]:
        message: Mapping[str, Any] = self.get("/works", **params).json()["message"]
        return message

"""What the demo source answers with, before trouble changes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, orjson.dumps(document), headers=headers or {})

"""What the executor asks of a source, and what it gets: one page as parsed JSON, with what its batch keeps of it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from platform_defs.ingest.spec.model import CallSpec


@dataclass(frozen=True)
class Fetched:
    """An answer that could be read as JSON and is no error by what its body says."""

    document: Any
    # what was asked and answered, without secrets: goes into the batch's digests
    request_digest: Mapping[str, Any] = field(default_factory=dict)
    response_digest: Mapping[str, Any] = field(default_factory=dict)
    # retryCount, 429Count, latencyMs, bytes …: summed up into the batch's stats
    counts: Mapping[str, int] = field(default_factory=dict)


class Source(Protocol):
    """Sends requests of one spec; raises ResponseError graded L1 (tried again later), L2, or L4."""

    def fetch(
        self, call: CallSpec, names: Mapping[str, Any], *, url: str | None = None, cancel: threading.Event
    ) -> Fetched:
        """Asks the endpoint with the names that its templates refer to; `url` is a next page's address instead."""
        ...

"""Remembers what recent events of compute engines said: most events repeat what an earlier run of their job said.

Extraction sees only the parts of an event that are compared here. So whatever it will read in the future must be added
here first, and no event can get the facts of another one that differs from it.
"""

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.compute.lineage import lineage_facts
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.facts import Fact, Ref, Statement, weight_of

DATASET_FACETS = ("schema", "documentation", "columnLineage", "symlinks", "lifecycleStateChange", "gravitino")
JOB_FACETS = ("sql", "jobType")
RUN_FACETS = ("processing_engine",)
# Facts that are remembered in all, half a kilobyte each. The 306 real events of the benchmark have 3,800.
MAX_FACTS = 16_000
_NO_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ComputeFacts:
    """What an event says; the statement among the facts names no run."""

    facts: tuple[Fact, ...]
    sql: Ref | None
    symlinks: Mapping[Ref, Ref]
    plain_names: frozenset[Ref]

    def of_run(self, run: str) -> tuple[Fact, ...]:
        return tuple(fact.of_run(run) if isinstance(fact, Statement) else fact for fact in self.facts)


@dataclass(slots=True)
class _Recent:
    """The facts that were asked for last, by what they were extracted from. Threads share it."""

    max_facts: int
    _known: dict[bytes, tuple[ComputeFacts, int]] = field(default_factory=dict)
    _facts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, key: bytes) -> ComputeFacts | None:
        with self._lock:
            found = self._known.pop(key, None)
            if found is None:
                return None
            self._known[key] = found
            return found[0]

    def keep(self, key: bytes, facts: ComputeFacts) -> None:
        weight = 1 + sum(map(weight_of, facts.facts))
        if weight > self.max_facts:
            return
        with self._lock:
            if key in self._known:
                return
            self._known[key] = (facts, weight)
            self._facts += weight
            while self._facts > self.max_facts:
                _, oldest = self._known.pop(next(iter(self._known)))
                self._facts -= oldest


_RECENT = _Recent(MAX_FACTS)


def compute_facts(event: Event, linked: Mapping[Ref, Ref]) -> ComputeFacts:
    """linked: what names mean by the symlinks of other events."""
    seen = _without_rest(event)
    key = _key(seen, linked)
    known = None if key is None else _RECENT.find(key)
    if known is None:
        tables = LogicalTables(seen, linked)
        lineage = lineage_facts(seen, tables)
        known = ComputeFacts(lineage.facts, lineage.sql, tables.symlinks, frozenset(tables.plain))
        if key is not None:
            _RECENT.keep(key, known)
    return known


def _without_rest(event: Event) -> Event:
    """The event without what differs from run to run, and without all else that extraction does not read."""
    return replace(
        event,
        event_time=_NO_TIME,
        run_id=None,
        inputs=tuple(map(_dataset, event.inputs)),
        outputs=tuple(map(_dataset, event.outputs)),
        dataset=None if event.dataset is None else _dataset(event.dataset),
        run_facets=_some(event.run_facets, RUN_FACETS),
        job_facets=_some(event.job_facets, JOB_FACETS),
        raw={},
        text="",
        payload_hash="",
        size=0,
    )


def _dataset(dataset: Dataset) -> Dataset:
    return Dataset(dataset.namespace, dataset.name, _some(dataset.facets, DATASET_FACETS))


def _some(facets: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: facets[name] for name in names if name in facets}


def _key(seen: Event, linked: Mapping[Ref, Ref]) -> bytes | None:
    """None for the rare event with numbers that the fast encoder does not take."""
    parts = [
        seen.kind,
        seen.event_type,
        seen.job_namespace,
        seen.job_name,
        seen.producer,
        *([(one.namespace, one.name, one.facets) for one in some] for some in (seen.inputs, seen.outputs)),
        None if seen.dataset is None else (seen.dataset.namespace, seen.dataset.name, seen.dataset.facets),
        seen.run_facets,
        seen.job_facets,
        sorted((name.id, table.id) for name, table in linked.items()),
    ]
    try:
        return hashlib.blake2b(orjson.dumps(parts), digest_size=20).digest()
    except orjson.JSONEncodeError:
        return None

"""Fetches what one batch holds: a page of the search, with the details of its ids where the source has two phases."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from platform_defs.canonical import sha256_hex
from platform_defs.ingest.codes import ErrorLevel
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.fetching.pages import PageFacts, PagePosition
from platform_defs.ingest.fetching.reading import (
    ID_TOO_LONG,
    NO_ID,
    UPDATED_AT,
    Record,
    Rejection,
    ResponseReader,
)
from platform_defs.ingest.fetching.source import Fetched, Source
from platform_defs.ingest.planning.slices import id_range_of, window_of
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import CallSpec, Spec
from platform_defs.ingest.spec.snapshot import mapping_hash

BAD_ID = "BAD_ID"
# If at least this many ids, each asked for alone, are refused and none is accepted, the request is wrong, not the ids.
FEWEST_REFUSED = 3
# After this many, and none accepted, no more are tried: each of hundreds of ids would cost two requests.
MOST_REFUSED = 20
# If a page has at least this many items and none of them can be read, then the format of the answers has changed.
FEWEST_UNREADABLE = 20
_UNREADABLE = (NO_ID, ID_TOO_LONG, UPDATED_AT)


@dataclass(frozen=True)
class CompiledSnapshot:
    """A plan's spec with everything that is compiled once: shared by all slices of the plan and their threads."""

    spec: Spec
    mapping: str
    search: ResponseReader | None
    detail: ResponseReader | None

    @classmethod
    def of(cls, spec: Spec) -> "CompiledSnapshot":
        # of a search that lists ids alone nothing is stored: the output fields are those of the details
        listed = () if spec.two_phase else spec.output_fields
        return cls(
            spec,
            mapping_hash(spec),
            search=None if spec.search is None else ResponseReader(spec.search, spec.pagination, listed),
            detail=None if spec.detail is None else ResponseReader(spec.detail, None, spec.output_fields),
        )


@dataclass
class FetchedBatch:
    """The content of one batch, and what its requests cost."""

    facts: PageFacts
    records: list[Record] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    outside: int = 0
    # a hash of the ids of all items of a search page, in any order; None if it has no items
    page_hash: str | None = None
    request_digest: Mapping[str, Any] = field(default_factory=dict)
    response_digest: Mapping[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add_request(self, fetched: Fetched) -> None:
        self.counts.update({"reqCount": 1, **fetched.counts})
        if not self.request_digest:
            self.request_digest, self.response_digest = fetched.request_digest, fetched.response_digest


def fetch_search_page(
    snapshot: CompiledSnapshot,
    source: Source,
    slice_spec: Mapping[str, Any],
    position: PagePosition,
    cancel: threading.Event,
) -> FetchedBatch:
    """Fetches one page of a search, with the details of its ids if the source has two phases. Raises ResponseError."""
    spec, reader = snapshot.spec, snapshot.search
    assert spec.search is not None, "a slice of time has an endpoint that lists"
    assert reader is not None, "it is compiled with the snapshot"
    window = window_of(slice_spec)
    fetched = source.fetch(
        spec.search, search_names(spec, slice_spec, window, position), url=position.url, cancel=cancel
    )
    items = reader.items(fetched.document)
    batch = _fetch_details_of(snapshot, source, items, cancel) if spec.two_phase else _read_items(reader, items)
    _refuse_if_nothing_can_be_read(batch, len(items))
    batch.facts = reader.facts(fetched.document, items, batch.records)
    batch.page_hash = _hash_of_ids(batch)
    search_request = FetchedBatch(batch.facts)
    search_request.add_request(fetched)
    batch.counts.update(search_request.counts)
    batch.request_digest, batch.response_digest = search_request.request_digest, search_request.response_digest
    return _inside_window(spec.search, batch, window)


def fetch_ids(snapshot: CompiledSnapshot, source: Source, ids: Sequence[str], cancel: threading.Event) -> FetchedBatch:
    """The records with these ids; an id that the source refuses or does not know is set aside alone.

    If the source refuses all ids, they are not bad: its endpoint has moved, or the request is wrong. That is an error,
    because a window of which nothing was stored must not count as complete.
    """
    spec = snapshot.spec
    assert spec.detail is not None, "an update has an endpoint that is asked by ids"
    batch = FetchedBatch(PageFacts(items=len(ids)))
    found: set[str] = set()
    for start in range(0, len(ids), spec.batching.id_batch_size):
        part = ids[start : start + spec.batching.id_batch_size]
        found |= _fetch_part(snapshot, source, part, batch, cancel)
    _refuse_if_none_is_good(batch, at_least=FEWEST_REFUSED)
    refused = {rejection.provider_id for rejection in batch.rejections}
    for missing in [each for each in ids if each not in found and each not in refused]:
        reason = "the source has no record of this id"
        batch.rejections.append(Rejection(missing, "NOT_FOUND", spec.detail.response.id_path, reason, None))
    return batch


def _fetch_part(
    snapshot: CompiledSnapshot, source: Source, ids: Sequence[str], batch: FetchedBatch, cancel: threading.Event
) -> set[str]:
    """Asks for some ids; where the source refuses the request, by halves, until the refused id stands alone."""
    spec, reader = snapshot.spec, snapshot.detail
    assert spec.detail is not None, "checked by the caller"
    assert reader is not None, "it is compiled with the snapshot"
    names = detail_names(spec, ids)
    try:
        fetched = source.fetch(spec.detail, names, cancel=cancel)
    except ResponseError as error:
        if error.level is not ErrorLevel.REQUEST:
            raise
        if len(ids) == 1:
            batch.rejections.append(Rejection(ids[0], BAD_ID, spec.detail.response.id_path, str(error), None))
            _refuse_if_none_is_good(batch, at_least=MOST_REFUSED)
            return set()
        middle = len(ids) // 2
        first = _fetch_part(snapshot, source, ids[:middle], batch, cancel)
        return first | _fetch_part(snapshot, source, ids[middle:], batch, cancel)
    batch.add_request(fetched)
    part = _read_items(reader, reader.items(fetched.document))
    batch.records += part.records
    batch.rejections += part.rejections
    known = {record.provider_id for record in part.records}
    return known | {rejection.provider_id for rejection in part.rejections if rejection.provider_id is not None}


def _refuse_if_nothing_can_be_read(batch: FetchedBatch, items: int) -> None:
    """Raises a fatal error, which blocks the endpoint (4.13 of the seed), if not one item of the page can be read.

    If all of them were set aside instead, the window would count as complete.
    """
    unreadable = [rejection for rejection in batch.rejections if rejection.reason_code in _UNREADABLE]
    if items >= FEWEST_UNREADABLE and len(unreadable) >= items:
        first = unreadable[0]
        reason = f"none of the {items} items of a page can be read; of the first one {first.field_path}: {first.reason}"
        raise ResponseError(ErrorLevel.FATAL, "ANSWERS_CHANGED", reason)


def _refuse_if_none_is_good(batch: FetchedBatch, *, at_least: int) -> None:
    refused = [rejection for rejection in batch.rejections if rejection.reason_code == BAD_ID]
    if len(refused) >= at_least and not batch.counts["reqCount"]:
        reason = f"{refused[-1].reason}; {len(refused)} ids were asked for one by one, and each was refused"
        raise ResponseError(ErrorLevel.REQUEST, "ALL_IDS_REFUSED", reason)


def _fetch_details_of(
    snapshot: CompiledSnapshot, source: Source, items: Sequence[Any], cancel: threading.Event
) -> FetchedBatch:
    reader = snapshot.search
    assert reader is not None, "checked by the caller"
    ids = [(item, reader.provider_id(item)) for item in items]
    wanted = list(dict.fromkeys(provider_id for _, provider_id in ids if provider_id is not None))
    batch = fetch_ids(snapshot, source, wanted, cancel) if wanted else FetchedBatch(PageFacts(items=0))
    path = snapshot.spec.search.response.id_path if snapshot.spec.search else ""
    batch.rejections += [
        Rejection(None, NO_ID, path, "expected an id, found none", item) for item, found in ids if found is None
    ]
    return batch


def _read_items(reader: ResponseReader, items: Sequence[Any]) -> FetchedBatch:
    batch = FetchedBatch(PageFacts(items=len(items)))
    for found in map(reader.record, items):
        if isinstance(found, Record):
            batch.records.append(found)
        else:
            batch.rejections.append(found)
    return batch


def _inside_window(call: CallSpec, batch: FetchedBatch, window: Window) -> FetchedBatch:
    """Gives records without a time of their own the window's, and drops those of another window.

    A source that filters by days, or includes both ends, returns more than was asked for; what it returns at the end of
    the window belongs to the next one.
    """
    if call.response.updated_at_from_window:
        batch.records = [record._replace(updated_at=window.start) for record in batch.records]
        return batch
    inside = [record for record in batch.records if record.updated_at and window.contains(record.updated_at)]
    batch.outside = len(batch.records) - len(inside)
    batch.records = inside
    return batch


def _hash_of_ids(batch: FetchedBatch) -> str | None:
    ids = [record.provider_id for record in batch.records]
    ids += [rejection.provider_id for rejection in batch.rejections if rejection.provider_id is not None]
    return sha256_hex("\n".join(sorted(ids))) if ids else None


def search_names(spec: Spec, slice_spec: Mapping[str, Any], window: Window, position: PagePosition) -> dict[str, Any]:
    """What templates may refer to; `window.until` is the last moment that is included, for sources that want that."""
    start: datetime = position.time_from or window.start
    until = window.end - spec.window.granularity if spec.window.filter_is_inclusive else window.end
    id_range = id_range_of(slice_spec)
    return {
        "window": {"from": start, "to": window.end, "until": until},
        "page": {
            "number": position.number,
            "page": position.page,
            "offset": position.offset,
            "size": spec.pagination.page_size,
            "token": position.token,
        },
        "sort": {"by": spec.pagination.order_by, "direction": spec.pagination.order_direction},
        "idRange": None if id_range is None else {"from": id_range[0], "to": id_range[1]},
    }


def detail_names(spec: Spec, ids: Sequence[str]) -> dict[str, Any]:
    """What templates of a request by ids may refer to."""
    return {"ids": list(ids), "idsText": spec.batching.ids_join.join(_plain_id(spec, each) for each in ids)}


def _plain_id(spec: Spec, provider_id: str) -> str:
    """Without the prefix that makes the id unique in our table."""
    has_prefix = spec.detail is not None and spec.detail.response.id_prefix_path is not None
    return provider_id.partition(":")[2] if has_prefix and ":" in provider_id else provider_id

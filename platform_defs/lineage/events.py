"""Parses one OpenLineage event: lenient where real producers are sloppy, strict where meaning would be lost.

This is the hot path of the sink, so nothing is copied: an Event refers to parts of the parsed JSON. Values that no
store can hold are found by the JSON encoder, which is fast; only an event that is refused is searched value by value,
to name the field.
"""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from platform_defs.canonical import canonical_hash, canonical_json, sorted_json
from platform_defs.lineage.errors import InvalidEvent
from platform_defs.lineage.event_times import parse_time

# the widths of the columns of lineage_events
MAX_EVENT_TYPE = 32
MAX_RUN_ID = 36
MAX_JOB_NAME = 255
MAX_JOB_NAMESPACE = 255
MAX_PRODUCER = 512
# MySQL's JSON type holds no deeper document and no longer key. The same limits apply on the other stores.
MAX_NESTING = 100
MAX_KEY_BYTES = 65535
MAX_PATH_SHOWN = 200

LARGEST_INTEGER = int(sys.float_info.max)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_FACETS: Mapping[str, Any] = {}


class EventKind(StrEnum):
    """The kinds of events, with the values of the column `_event_type`."""

    RUN = "RUN_EVENT"
    DATASET = "DATASET_EVENT"
    JOB = "JOB_EVENT"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as an event names it."""

    namespace: str
    name: str
    facets: Mapping[str, Any]

    def facet(self, name: str) -> Mapping[str, Any]:
        """The facet's content; empty if the facet is absent, null or not an object."""
        return facet_of(self.facets, name)


@dataclass(frozen=True, slots=True)
class Event:
    """One event, parsed. Its facets and `raw` are parts of the JSON that was received, not copies."""

    kind: EventKind
    event_time: datetime
    event_type: str | None
    run_id: str | None
    job_namespace: str | None
    job_name: str | None
    producer: str | None
    inputs: tuple[Dataset, ...]
    outputs: tuple[Dataset, ...]
    dataset: Dataset | None
    run_facets: Mapping[str, Any]
    job_facets: Mapping[str, Any]
    raw: Mapping[str, Any]
    text: str  # the canonical JSON, which is stored
    payload_hash: str
    size: int  # bytes of the canonical JSON

    @property
    def datasets(self) -> Iterator[Dataset]:
        """All datasets of the event: inputs, outputs, then the dataset of a dataset event."""
        yield from self.inputs
        yield from self.outputs
        if self.dataset is not None:
            yield self.dataset


def facet_of(facets: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    content = facets.get(name)
    return content if isinstance(content, dict) else _NO_FACETS


def parse_event(raw: object) -> Event:
    """The parsed event. Raises InvalidEvent, which names the field that is wrong."""
    if not isinstance(raw, dict):
        raise InvalidEvent("event", f"expected a JSON object, got {_type_name(raw)}")
    text, payload = _canonical_payload(raw)
    kind = _kind(raw)
    run, job = _object(raw, "run", ""), _object(raw, "job", "")
    needs_job = kind is not EventKind.DATASET
    return Event(
        kind=kind,
        event_time=_time(raw),
        event_type=_event_type(raw),
        run_id=_text(run, "runId", "run.", MAX_RUN_ID, required=kind is EventKind.RUN),
        job_namespace=_text(job, "namespace", "job.", MAX_JOB_NAMESPACE, required=needs_job),
        job_name=_text(job, "name", "job.", MAX_JOB_NAME, required=needs_job),
        producer=_text(raw, "producer", "", MAX_PRODUCER, required=False),
        inputs=_datasets(raw, "inputs"),
        outputs=_datasets(raw, "outputs"),
        dataset=_dataset(raw["dataset"], "dataset") if kind is EventKind.DATASET else None,
        run_facets=_object(run, "facets", "run."),
        job_facets=_object(job, "facets", "job."),
        raw=raw,
        text=text,
        payload_hash=hashlib.sha256(payload).hexdigest(),
        size=len(payload),
    )


def fingerprint(tenant_id: int, event: Event) -> str:
    """A hash of 64 hex digits that is the same for every delivery of this event to this tenant."""
    time = event.event_time.isoformat(timespec="microseconds")
    return canonical_hash([tenant_id, event.run_id, event.event_type, time, event.payload_hash])


def _kind(raw: Mapping[str, Any]) -> EventKind:
    if raw.get("run") is not None:
        return EventKind.RUN
    if raw.get("dataset") is not None:
        return EventKind.DATASET
    if raw.get("job") is not None:
        return EventKind.JOB
    raise InvalidEvent("run", "expected one of run, dataset and job, which decide the kind of the event")


def _time(raw: Mapping[str, Any]) -> datetime:
    value = raw.get("eventTime")
    if value is None or value == "":
        raise InvalidEvent("eventTime", "expected the time of the event, got none")
    try:
        return parse_time(value)
    except ValueError as error:
        raise InvalidEvent("eventTime", str(error)) from None


def _event_type(raw: Mapping[str, Any]) -> str | None:
    value = _text(raw, "eventType", "", MAX_EVENT_TYPE, required=False)
    return None if value is None else value.upper()


def _text(source: Mapping[str, Any], key: str, at: str, limit: int, *, required: bool) -> str | None:
    """The text at a key without blanks around it; None if it is absent and not required. Raises InvalidEvent."""
    value = source.get(key)
    if value is None:
        value = ""
    if type(value) is not str:
        raise InvalidEvent(f"{at}{key}", f"expected a text, got {_type_name(value)}")
    value = value.strip()
    if len(value) > limit:
        raise InvalidEvent(f"{at}{key}", f"expected at most {limit} characters, got {len(value)}")
    if value:
        return value
    if required:
        raise InvalidEvent(f"{at}{key}", f"expected 1 to {limit} characters, got none")
    return None


def _object(source: Mapping[str, Any], key: str, at: str) -> Mapping[str, Any]:
    value = source.get(key)
    if value is None:
        return _NO_FACETS
    if not isinstance(value, dict):
        raise InvalidEvent(f"{at}{key}", f"expected an object, got {_type_name(value)}")
    return value


def _datasets(raw: Mapping[str, Any], key: str) -> tuple[Dataset, ...]:
    values = raw.get(key)
    if values is None:
        return ()
    if not isinstance(values, list):
        raise InvalidEvent(key, f"expected an array, got {_type_name(values)}")
    return tuple(_dataset(value, f"{key}[{index}]") for index, value in enumerate(values))


def _dataset(value: object, at: str) -> Dataset:
    if not isinstance(value, dict):
        raise InvalidEvent(at, f"expected an object, got {_type_name(value)}")
    namespace, name = value.get("namespace"), value.get("name")
    for key, text in (("namespace", namespace), ("name", name)):
        if type(text) is not str or not text.strip():
            raise InvalidEvent(f"{at}.{key}", "expected a text that is not empty")
    return Dataset(namespace, name, _object(value, "facets", f"{at}."))  # type: ignore[arg-type]  # checked above


def _canonical_payload(raw: Mapping[str, Any]) -> tuple[str, bytes]:
    """The canonical JSON of the event, as text and in UTF-8. Raises InvalidEvent if some store could not hold it."""
    has_fractions = _check_structure(raw)
    try:
        payload = canonical_json(raw).encode() if has_fractions else sorted_json(raw)
        return payload.decode(), payload
    except (ValueError, TypeError):  # NaN, types that JSON lacks, lone surrogates (UnicodeEncodeError is a ValueError)
        raise _find_refused_field(raw) from None


def _check_structure(raw: Mapping[str, Any]) -> bool:
    """Checks nesting, keys and integers, level by level and without recursion, so that no depth exhausts the stack.

    Returns whether a number has a fraction.
    """
    has_fractions = False
    level: list[Any] = [raw]
    for _ in range(MAX_NESTING):
        inner: list[Any] = []
        for container in level:
            values = container
            if type(container) is dict:
                _check_keys(container)
                values = container.values()
            for value in values:
                kind = type(value)
                if kind is dict or kind is list:
                    inner.append(value)
                elif kind is int and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
                    raise _find_refused_field(raw)
                elif kind is float:
                    has_fractions = True
        if not inner:
            return has_fractions
        level = inner
    raise InvalidEvent("event", f"expected JSON nested at most {MAX_NESTING} levels deep")


def _check_keys(container: dict[str, Any]) -> None:
    # a character has at most four bytes, so the bytes of short keys need not be counted
    if max(map(len, container), default=0) * 4 <= MAX_KEY_BYTES:
        return
    for key in container:
        if len(key.encode("utf-8", "replace")) > MAX_KEY_BYTES:
            raise InvalidEvent(ascii(key[:MAX_PATH_SHOWN]), f"expected names of at most {MAX_KEY_BYTES} bytes")


def _find_refused_field(raw: Mapping[str, Any]) -> InvalidEvent:
    """The error for an event that no store can hold; it names the field with the first such value."""
    return _search(raw, "") or InvalidEvent("event", "expected JSON")


def _search(value: object, at: str) -> InvalidEvent | None:
    """The error for the first value that a store cannot hold. Recursion is safe: the depth was checked before."""
    if isinstance(value, dict):
        for key, item in value.items():
            path = f"{at}.{key}" if at else str(key)
            if type(key) is not str or _SURROGATE.search(key):
                return InvalidEvent(ascii(path[:MAX_PATH_SHOWN]), "expected names that are text, got a lone surrogate")
            if error := _search(item, path):
                return error
        return None
    if isinstance(value, list):
        return next(filter(None, (_search(item, f"{at}[{index}]") for index, item in enumerate(value))), None)
    reason = _why_not_storable(value)
    return None if reason is None else InvalidEvent(at[:MAX_PATH_SHOWN], reason)


def _why_not_storable(value: object) -> str | None:
    if value is None or type(value) is bool:
        return None
    if type(value) is str:
        return "expected text, got a lone surrogate" if _SURROGATE.search(value) else None
    if type(value) is int or type(value) is float:
        # a comparison with NaN is always false, so NaN is out of range as well
        in_range = -LARGEST_INTEGER <= value <= LARGEST_INTEGER
        return None if in_range else "expected a finite number in the range of a double"
    return f"expected JSON, got {_type_name(value)}"


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)

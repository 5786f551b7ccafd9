"""A spec as JSON and back, and the hashes by which two specs are told apart."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.spec.model import Spec


def spec_as_json(spec: Spec) -> dict[str, Any]:
    """The snapshot as a plan stores it: camelCase names, instants and durations in ISO 8601."""
    found: dict[str, Any] = _to_json(spec)
    return found


def spec_from_json(document: Mapping[str, Any]) -> Spec:
    found: Spec = _from_json(Spec, document)
    return found


def spec_fingerprint(spec: Spec) -> str:
    """Differs when anything in the snapshot does."""
    return canonical_hash(spec_as_json(spec))


def expr_proto_snapshot(spec: Spec) -> dict[str, Any]:
    """What shapes requests and the reading of responses: the snapshot without rates, retries and limits."""
    shaping = ("search", "detail", "twoPhase", "pagination", "window", "expr", "outputFields", "idRangeParam")
    document = spec_as_json(spec)
    return {name: document[name] for name in shaping}


def expr_proto_hash(spec: Spec) -> str:
    return canonical_hash(expr_proto_snapshot(spec))


def mapping_hash(spec: Spec) -> str:
    """The hash that stored records carry: differs when the same item would become another record.

    It holds nothing of windows, pages or the endpoint that listed the item, so that a harvested record and the same
    record fetched again by its id have the same hash.
    """
    source = spec.detail if spec.detail is not None and (spec.two_phase or spec.search is None) else spec.search
    response = None if source is None else _to_json(source.response)
    reading = {} if response is None else {name: response[name] for name in ("idPath", "idPrefixPath", "updatedAtPath")}
    return canonical_hash({"response": reading, "output": [_to_json(output) for output in spec.output_fields]})


def duration_text(value: timedelta) -> str:
    """ISO 8601 in seconds, such as PT600S: one text for each duration."""
    seconds = value / timedelta(seconds=1)
    return f"PT{seconds:g}S" if seconds != int(seconds) else f"PT{int(seconds)}S"


def instant_text(value: datetime) -> str:
    """ISO 8601 in UTC with a Z: one text for each instant."""
    return (value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat()[:-6] + "Z"


def instant_of(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _to_json(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool, float):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {camel_case(each.name): _to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, Mapping):
        return {str(name): _to_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(inner) for inner in value]
    return value


def _from_json(wanted: Any, value: Any) -> Any:
    if value is None or wanted is Any:
        return value
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in get_args(wanted) if each is not type(None))
        return _from_json(inner, value)
    if origin is tuple:
        parts = get_args(wanted)
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_from_json(kind, inner) for kind, inner in zip(kinds, value, strict=True))
    if isinstance(wanted, type) and is_dataclass(wanted):
        known = {camel_case(name): (name, hint) for name, hint in _field_types(wanted).items()}
        return wanted(
            **{known[key][0]: _from_json(known[key][1], inner) for key, inner in value.items() if key in known}
        )
    if wanted is timedelta:
        return timedelta(seconds=float(value.removeprefix("PT").removesuffix("S")))
    if wanted is datetime:
        return instant_of(value)
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        return wanted(value)
    if origin is not None:
        return dict(value)
    return value


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def camel_case(name: str) -> str:
    """The name of a field in the JSON of a spec: page_size is pageSize."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

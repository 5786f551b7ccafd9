"""Checks of values before a store writes them, so that both stores refuse the same input with the same error."""

import math
import re
from collections.abc import Mapping, Set
from typing import Any, TypeAlias

from platform_defs.canonical import canonical_json
from platform_defs.graph.errors import InvalidGraphValue
from platform_defs.graph.vocabulary import (
    EDGE_TYPES,
    KINDS,
    KNOWLEDGE,
    RESERVED_PROPERTIES,
    TENANT,
    vector_dimension,
)

MAX_ID_LENGTH = 512
MAX_TENANT_CODE_LENGTH = 64
MAX_NESTING = 100
INT64 = range(-(2**63), 2**63)

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Scalar | list[Scalar]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_tenant(tenant: Any) -> int:
    if type(tenant) is not int or tenant not in INT64:
        raise InvalidGraphValue("tenant", f"expected an integer of 64 bits, got {type(tenant).__name__}")
    return tenant


def check_id(value: Any, field: str = "id") -> str:
    if type(value) is not str:
        raise InvalidGraphValue(field, f"expected a string, got {type(value).__name__}")
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidGraphValue(field, f"expected 1 to {MAX_ID_LENGTH} characters, got {len(value)}")
    if "\x00" in value:
        raise InvalidGraphValue(field, "contains a NUL character")
    _check_text(value, field)
    return value


def check_edge_type(value: Any) -> str:
    if type(value) is not str or value not in EDGE_TYPES:
        raise InvalidGraphValue("type", f"no such edge type: {_show(value)}")
    return value


def check_kind(value: Any) -> str:
    if type(value) is not str or value not in KINDS:
        raise InvalidGraphValue("kind", f"no such kind: {_show(value)}")
    return value


def check_labels(labels: Set[str], *, kind_required: bool) -> tuple[str | None, str | None]:
    """The kind and the vector label in a set of labels; a patch (not kind_required) must not name a kind."""
    kind = vector = None
    for label in labels:
        if type(label) is not str:
            raise InvalidGraphValue("labels", f"expected strings, got {type(label).__name__}")
        if label == KNOWLEDGE:
            continue
        if label in KINDS:
            if kind:
                raise InvalidGraphValue("labels", f"expected one kind, got {' and '.join(sorted((kind, label)))}")
            kind = label
        elif vector_dimension(label):
            if vector:
                raise InvalidGraphValue("labels", "expected one vector label at most")
            vector = label
        else:
            raise InvalidGraphValue("labels", f"no such label: {_show(label)}")
    if kind_required and not kind:
        raise InvalidGraphValue("labels", "expected a kind such as Table")
    if not kind_required and kind:
        raise InvalidGraphValue("labels", "only an upsert changes the kind")
    if kind == TENANT and len(labels) > 1:
        raise InvalidGraphValue("labels", "a Tenant node carries no other label")
    return kind, vector


def check_props(props: Mapping[str, Any]) -> dict[str, Value | None]:
    """The properties as both stores keep them: maps as canonical JSON text, tuples as lists, None as removal."""
    return {_check_name(name): _check_value(value, f"props.{name}") for name, value in props.items()}


def check_tenant_props(props: Mapping[str, Value | None]) -> None:
    """The code of a tenant is indexed and unique on both stores, so it has a bounded length."""
    code = props.get("code")
    if code is not None and (type(code) is not str or not 1 <= len(code) <= MAX_TENANT_CODE_LENGTH):
        raise InvalidGraphValue("props.code", f"expected a text of 1 to {MAX_TENANT_CODE_LENGTH} characters")


def check_embedding(vector: str | None, props: Mapping[str, Value | None]) -> None:
    """Refuses a vector of another length than its label says: Neo4j would silently leave it out of the index."""
    embedding = props.get("embedding")
    if vector is None or embedding is None:
        return
    dimension = vector_dimension(vector)
    if type(embedding) is not list or len(embedding) != dimension or type(embedding[0]) is not float:
        raise InvalidGraphValue("props.embedding", f"expected a list of {dimension} floats, as {vector} says")


def _check_name(name: Any) -> str:
    if type(name) is not str or not _IDENTIFIER.fullmatch(name):
        raise InvalidGraphValue("props", f"not a property name: {_show(name)}")
    if name in RESERVED_PROPERTIES:
        raise InvalidGraphValue(f"props.{name}", "reserved: the store writes it")
    return name


def _check_value(value: Any, field: str) -> Value | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _map_as_json(value, field)
    if isinstance(value, list | tuple):
        items = [_check_scalar(item, field) for item in value]
        # Neo4j keeps lists of one type: it turns 1 into 1.0 beside a float and refuses other mixtures
        if len({type(item) for item in items}) > 1:
            raise InvalidGraphValue(field, "a list holds values of one type")
        return items
    return _check_scalar(value, field)


def _check_scalar(value: Any, field: str) -> Scalar:
    # exact types, because each driver writes subclasses (an enum, a numpy float) in its own way
    if type(value) is str:
        _check_text(value, field)
        return value
    if type(value) is bool:
        return value
    if type(value) is int:
        if value not in INT64:
            raise InvalidGraphValue(field, "an integer beyond 64 bits")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise InvalidGraphValue(field, "not a finite number")
        return value
    raise InvalidGraphValue(
        field, f"expected text, integer, float, boolean, a list of these or a map, got {type(value).__name__}"
    )


def _check_text(value: str, field: str) -> None:
    if _SURROGATE.search(value):
        raise InvalidGraphValue(field, "contains a lone surrogate, which is not text")


def _map_as_json(value: Mapping[str, Any], field: str) -> str:
    text = canonical_json(_json_value(value, field, MAX_NESTING))
    _check_text(text, field)
    return text


def _json_value(value: Any, field: str, depth: int) -> Any:
    """The value if JSON can hold it exactly; json.dumps alone would also accept enums and keys that are no strings."""
    if depth == 0:
        raise InvalidGraphValue(field, f"nested deeper than {MAX_NESTING}")
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise InvalidGraphValue(field, "the keys of a map are strings")
        return {key: _json_value(item, field, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, field, depth - 1) for item in value]
    if value is None or type(value) is int:  # JSON text has no limit for integers
        return value
    return _check_scalar(value, field)


def _show(value: Any) -> str:
    return ascii(value[:64]) if type(value) is str else type(value).__name__

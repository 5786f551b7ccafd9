"""Canonical JSON and the hashes over it: the same value gives the same text on every machine."""

import hashlib
import json
from json.encoder import encode_basestring
from typing import Any

import orjson

# made once: json.dumps would make an encoder for each value
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
# a text as it stands in canonical JSON
json_string = encode_basestring


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, UTF-8 as it is, no NaN: two equal values have one text."""
    return _ENCODER.encode(value)


def sorted_json(value: Any) -> bytes:
    """JSON with sorted keys, in a third of the time. It is the canonical text, in UTF-8, if the value has no floats."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer of more than 64 bits, a key that is no text, a lone surrogate
        return canonical_json(value).encode()


def sha256_hex(text: str) -> str:
    # surrogatepass, because text with a lone surrogate is refused elsewhere, with the name of its field
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def canonical_hash(value: Any) -> str:
    return sha256_hex(canonical_json(value))

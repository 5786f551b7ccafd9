"""Masks secrets in stored answers: a receiver may echo the secret that it was sent, in any spelling."""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from platform_defs.logs import MASK, mask_secrets
from platform_defs.webhooks.secrets import Secret, SecretKind

# a beginning of a secret that is shorter than this, at the end of a cut answer, reveals too little to be masked
MIN_BEGINNING = 3
MIN_WORD = 6


def spellings_of(secret: Secret | None, signing: str | None) -> list[str]:
    """All forms in which the two secrets may appear in a text, the longest first."""
    plain = {signing, signing.partition("_")[2]} if signing else set()
    if secret is not None:
        plain.add(secret.value)
        # `Bearer xxx` and the like: the token alone is the secret
        plain.update(word for word in secret.value.split() if len(word) >= MIN_WORD)
        if secret.kind is SecretKind.BODY:
            plain.update(_leaves(json.loads(secret.value)))
    found = {spelling for text in plain if text for spelling in _encodings(text)}
    return sorted(found, key=lambda spelling: (-len(spelling), spelling))


def mask_spellings(text: str, spellings: Sequence[str], *, cut: bool = False) -> str:
    """Masks every spelling; with `cut`, also the beginning of one at the end of the text, which was cut off there."""
    for spelling in spellings:
        text = text.replace(spelling, MASK)
    if cut:
        longest = max((_overlap(text, spelling) for spelling in spellings), default=0)
        text = text[: len(text) - longest] + MASK if longest else text
    return mask_secrets(text)


def _encodings(text: str) -> set[str]:
    return {
        text,
        quote(text, safe=""),
        quote(text),
        quote_plus(text),
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        base64.b64encode(text.encode()).decode("ascii"),
    }


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _overlap(text: str, spelling: str) -> int:
    """How many characters at the end of the text are the beginning of the spelling."""
    longest = min(len(text), len(spelling) - 1)
    return next((n for n in range(longest, MIN_BEGINNING - 1, -1) if text.endswith(spelling[:n])), 0)

"""What is kept of an answer: a receiver may echo the secret that it was sent, so every spelling of it is masked."""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from platform_defs.logs import MASK, mask
from platform_defs.webhooks.secrets import Kind, Secret

# a shorter beginning of a secret, at the very end of a cut answer, tells nothing
MIN_BEGINNING = 3
MIN_WORD = 6


def spellings(secret: Secret | None, signing: str | None) -> list[str]:
    """All forms in which the secrets may stand in a text, the longest first."""
    plain = {signing, signing.partition("_")[2]} if signing else set()
    if secret is not None:
        plain.add(secret.value)
        # `Bearer xxx` and the like: the token alone is the secret
        plain.update(word for word in secret.value.split() if len(word) >= MIN_WORD)
        if secret.kind is Kind.BODY:
            plain.update(_leaves(json.loads(secret.value)))
    found = {form for text in plain if text for form in _forms(text)}
    return sorted(found, key=lambda form: (-len(form), form))


def scrubbed(text: str, forms: Sequence[str], *, cut: bool = False) -> str:
    """The text without the secrets, nor the beginning of one where the text was cut off within it."""
    for form in forms:
        text = text.replace(form, MASK)
    if cut:
        longest = max((_overlap(text, form) for form in forms), default=0)
        text = text[: len(text) - longest] + MASK if longest else text
    return mask(text)


def _forms(text: str) -> set[str]:
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


def _overlap(text: str, form: str) -> int:
    """How many letters at the end of the text begin the form."""
    longest = min(len(text), len(form) - 1)
    return next((n for n in range(longest, MIN_BEGINNING - 1, -1) if text.endswith(form[:n])), 0)

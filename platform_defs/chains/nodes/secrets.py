"""Secrets of nodes: `env:NAME` in a cfg refers to an environment variable that PLATFORM_CHAIN_ENV allows.

The reference stays in tables and snapshots; the value is read when an attempt needs it, and is masked in whatever the
attempt logs, returns or saves.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from platform_defs.chains.nodes.port import NodeFailed, SecretNames
from platform_defs.logs import MASK, mask_secrets

# `env:NAME`, or a word before it, as in `Bearer env:NAME`
_REFERENCE = re.compile(r"(?P<before>[A-Za-z0-9_-]{1,32} )?env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
# a shorter value would be masked wherever its few letters occur
SHORTEST_SECRET = 4

Path = tuple[str | int, ...]


def referenced_name(text: str) -> str | None:
    """The environment variable that a text refers to; None if it is no reference."""
    found = _REFERENCE.fullmatch(text)
    return None if found is None else found["name"]


def text_leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in a JSON structure, with the way to it."""
    match value:
        case str():
            yield path, value
        case Mapping():
            for key, member in value.items():
                yield from text_leaves(member, (*path, key))
        case list() | tuple():
            for index, element in enumerate(value):
                yield from text_leaves(element, (*path, index))


def secret_problems(cfg: Mapping[str, Any], names: SecretNames) -> list[str]:
    """One line for each reference to a variable that chains may not refer to."""
    return [
        f"{path_text(path)}: {refusal(name)}"
        for path, text in text_leaves(cfg)
        if (name := referenced_name(text)) is not None and not names.allow(name)
    ]


def refusal(name: str) -> str:
    return f"chains may not refer to env:{name}; PLATFORM_CHAIN_ENV names the variables that are allowed"


def path_text(path: Path) -> str:
    """`cfg.headers.X-Token`, `cfg.body[0]`."""
    return "cfg" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


@dataclass
class AttemptSecrets:
    """The secrets that one attempt of a node has read, so that they can be masked."""

    names: SecretNames
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    _values: list[str] = field(default_factory=list, repr=False)

    def reveal(self, text: str) -> str:
        """The text itself, or what it refers to. Raises NodeFailed if the variable is not allowed or not set."""
        found = _REFERENCE.fullmatch(text)
        if found is None:
            return text
        name = found["name"]
        if not self.names.allow(name):
            raise NodeFailed(refusal(name), may_retry=False)
        value = self.environment.get(name, "").strip()
        if not value:
            raise NodeFailed(f"the secret env:{name} is not set where the chain runs", may_retry=False)
        if len(value) < SHORTEST_SECRET:
            raise NodeFailed(f"env:{name}: expected a secret of at least {SHORTEST_SECRET} characters", may_retry=False)
        # the longer one first: a secret may be part of another
        self._values = sorted({*self._values, value, quote(value, safe="")}, key=len, reverse=True)
        return f"{found['before'] or ''}{value}"

    def mask(self, text: str) -> str:
        """The text without the secrets that were read, and without what looks like a password or a token."""
        return mask_secrets(self.mask_exactly(text))

    def mask_exactly(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, MASK)
        return text

    def mask_json(self, value: Any) -> Any:
        """A JSON structure without the secrets that were read."""
        if not self._values:
            return value
        match value:
            case str():
                return self.mask_exactly(value)
            case Mapping():
                return {self.mask_exactly(str(key)): self.mask_json(member) for key, member in value.items()}
            case list() | tuple():
                return [self.mask_json(element) for element in value]
            case bool() | None:
                return value
        return MASK if str(value) in self._values else value

"""Secrets of a subscription: the triple `type,key,value` and the signing secret, how they are stored and shown.

A value is stored as a reference (`env:NAME`, read when an attempt is made) or encrypted. Rows that other programs wrote
may hold a plain value: it works, and listings mask it too.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from platform_defs.errors import SettingsError
from platform_defs.logs import MASK
from platform_defs.settings import resolve_secret
from platform_defs.webhooks.encryption import ENCRYPTED, Encryption
from platform_defs.webhooks.errors import SecretError

REFERENCE = "env:"
SIGNING_PREFIX = "whsec_"
SIGNING = "signing"
MAX_STORED = 2048

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
# headers that the sender sets itself, and headers that belong to the connection
_RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_RESERVED_PREFIXES = ("proxy-", "webhook-")


class SecretKind(StrEnum):
    """Where the value goes: into the query of the callback, into a header, or into the JSON body."""

    QUERY = "Query"
    HEADER = "Header"
    BODY = "Body"


@dataclass(frozen=True)
class Secret:
    """A parsed triple; `value` is plain or as it is stored, depending on which was parsed."""

    kind: SecretKind
    key: str
    value: str = field(repr=False)

    @property
    def purpose(self) -> str:
        """Encryption binds the value to it, so that a stored value cannot be moved to another header or place."""
        return f"{self.kind},{self.key}"


def parse_secret(text: str) -> Secret:
    """`Header,Authorization,Bearer xxx`: the value is everything after the second comma."""
    kind, _, rest = text.partition(",")
    key, comma, value = rest.partition(",")
    kinds = {known.lower(): known for known in SecretKind}
    if not comma or kind.strip().lower() not in kinds:
        raise SecretError("expected `Query,key,value`, `Header,key,value` or `Body,json,{…}`")
    secret = Secret(kinds[kind.strip().lower()], key.strip(), value.strip())
    _check_key(secret.kind, secret.key)
    return secret


def storable_secret(text: str, encryption: Encryption, *, message_fields: Collection[str]) -> str:
    """The text to store for a triple as its owner wrote it; a Body secret may not use the message's own fields."""
    secret = parse_secret(text)
    if not secret.value.startswith(REFERENCE):
        check_value(secret, message_fields=message_fields)
    return _check_length(f"{secret.purpose},{_storable_value(secret.value, encryption, secret.purpose)}")


def storable_signing_secret(text: str, encryption: Encryption) -> str:
    text = text.strip()
    if not text.startswith(REFERENCE):
        signing_key(text)
    return _check_length(_storable_value(text, encryption, SIGNING))


def referenced_variable(stored: str) -> str | None:
    """The environment variable that a stored secret refers to; None if the secret is encrypted."""
    value = stored.rpartition(",")[2]
    return value.removeprefix(REFERENCE) if value.startswith(REFERENCE) else None


def reveal_secret(text: str, encryption: Encryption) -> Secret:
    """The stored triple with its plain value, for an attempt that is made now."""
    secret = parse_secret(text)
    plain = Secret(secret.kind, secret.key, _reveal_value(secret.value, encryption, secret.purpose))
    # the fields of a Body secret are compared with the message's when the two are merged
    check_value(plain, message_fields=())
    return plain


def reveal_signing_secret(text: str, encryption: Encryption) -> str:
    plain = _reveal_value(text, encryption, SIGNING)
    signing_key(plain)
    return plain


def mask_secret(text: str) -> str:
    """A stored triple as a listing shows it; a reference stays readable."""
    try:
        secret = parse_secret(text)
    except SecretError:
        return MASK
    return f"{secret.purpose},{mask_value(secret.value)}"


def mask_value(value: str) -> str:
    is_reference = value.startswith(REFERENCE) and _ENV_NAME.fullmatch(value.removeprefix(REFERENCE))
    return value if is_reference else MASK


def check_value(secret: Secret, *, message_fields: Collection[str]) -> None:
    """Raises SecretError if the plain value cannot be sent; the error never shows the value."""
    if not secret.value:
        raise SecretError("expected a value that is not empty")
    if secret.kind is SecretKind.HEADER and not _HEADER_VALUE.fullmatch(secret.value):
        raise SecretError("expected a header value of printable ASCII on one line")
    if secret.kind is SecretKind.BODY:
        body_fields(secret.value, message_fields=message_fields)


def body_fields(value: str, *, message_fields: Collection[str]) -> dict[str, Any]:
    """The fields that a Body secret adds to the message, which must not be among the message's own."""
    try:
        fields = json.loads(value)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise SecretError("expected a JSON object as the value of a Body secret")
    if taken := sorted(fields.keys() & set(message_fields)):
        raise SecretError(f"expected names that the message does not use itself, not {', '.join(taken)}")
    return fields


def signing_key(secret: str) -> bytes:
    """The key in `whsec_…` as Standard Webhooks defines it: 24 to 64 bytes in base64."""
    try:
        key = base64.b64decode(secret.removeprefix(SIGNING_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SIGNING_PREFIX) or not 24 <= len(key) <= 64:
        raise SecretError("expected whsec_ and 24 to 64 bytes in base64")
    return key


def _check_key(kind: SecretKind, key: str) -> None:
    if kind is SecretKind.HEADER and not _HEADER_NAME.fullmatch(key):
        raise SecretError("expected a header name between the commas")
    if kind is SecretKind.HEADER and (key.lower() in _RESERVED_HEADERS or key.lower().startswith(_RESERVED_PREFIXES)):
        raise SecretError(f"the header {key} cannot be set by a subscription")
    if kind is SecretKind.QUERY and not (key and len(key) <= 128 and key.isprintable()):
        raise SecretError("expected the name of a query parameter between the commas")
    if kind is SecretKind.BODY and key != "json":
        raise SecretError("expected `json` between the commas: the format of a Body secret")


def _storable_value(value: str, encryption: Encryption, purpose: str) -> str:
    if not value.startswith(REFERENCE):
        return encryption.encrypt(value, purpose)
    if not _ENV_NAME.fullmatch(value.removeprefix(REFERENCE)):
        raise SecretError("expected the name of an environment variable after env:")
    return value


def _reveal_value(value: str, encryption: Encryption, purpose: str) -> str:
    if value.startswith(ENCRYPTED):
        return encryption.decrypt(value, purpose)
    if value.startswith(REFERENCE):
        try:
            return resolve_secret(value).strip()
        except SettingsError as error:
            raise SecretError(str(error)) from None
    return value


def _check_length(text: str) -> str:
    if len(text) > MAX_STORED:
        raise SecretError("expected a shorter secret: about 1400 bytes fit")
    return text

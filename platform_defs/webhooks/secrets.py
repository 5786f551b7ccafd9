"""A subscription's secrets: the triple `type,key,value`, the signing secret, and how either is stored and shown.

A value is stored as a reference (`env:NAME`, read when an attempt is made) or encrypted. Rows that other systems
wrote may hold it as it stands: it is understood, and masked all the same.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from platform_defs.arrivals.errors import SecretError
from platform_defs.errors import SettingsError
from platform_defs.logs import MASK
from platform_defs.settings import resolve_secret
from platform_defs.webhooks.encryption import SEALED, Vault

REFERENCE = "env:"
SIGNING_PREFIX = "whsec_"
SIGNING = "signing"
MAX_STORED = 2048
MESSAGE_FIELDS = ("event", "modelId", "opTime", "affectedKpiIds", "timestamp")

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
# what we set ourselves, and what belongs to the connection
_OWN_HEADERS = frozenset(
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
_OWN_PREFIXES = ("proxy-", "webhook-")


class Kind(StrEnum):
    QUERY = "Query"
    HEADER = "Header"
    BODY = "Body"


@dataclass(frozen=True)
class Secret:
    """Where the value goes; `value` is the plain one, or as it is stored."""

    kind: Kind
    key: str
    value: str = field(repr=False)

    @property
    def purpose(self) -> str:
        return f"{self.kind},{self.key}"


def parse(text: str) -> Secret:
    """`Header,Authorization,Bearer xxx`: the value is everything after the second comma."""
    kind, _, rest = text.partition(",")
    key, comma, value = rest.partition(",")
    kinds = {known.lower(): known for known in Kind}
    if not comma or kind.strip().lower() not in kinds:
        raise SecretError("expected `Query,key,value`, `Header,key,value` or `Body,json,{…}`")
    secret = Secret(kinds[kind.strip().lower()], key.strip(), value.strip())
    _check_key(secret.kind, secret.key)
    return secret


def stored(text: str, vault: Vault) -> str:
    """What goes into the table for a triple as its owner wrote it."""
    secret = parse(text)
    if not secret.value.startswith(REFERENCE):
        check_value(secret)
    return _fitting(f"{secret.purpose},{_kept(secret.value, vault, secret.purpose)}")


def stored_signing(text: str, vault: Vault) -> str:
    text = text.strip()
    if not text.startswith(REFERENCE):
        signing_key(text)
    return _fitting(_kept(text, vault, SIGNING))


def reference_in(kept: str) -> str | None:
    """The variable that a stored triple or signing secret refers to, None where it is encrypted."""
    value = kept.rpartition(",")[2]
    return value.removeprefix(REFERENCE) if value.startswith(REFERENCE) else None


def revealed(text: str, vault: Vault) -> Secret:
    """The triple with its plain value, for an attempt that is made now."""
    secret = parse(text)
    plain = Secret(secret.kind, secret.key, _plain(secret.value, vault, secret.purpose))
    check_value(plain)
    return plain


def revealed_signing(text: str, vault: Vault) -> str:
    plain = _plain(text, vault, SIGNING)
    signing_key(plain)
    return plain


def masked(text: str) -> str:
    """How a listing shows a stored triple: a reference stays readable."""
    try:
        secret = parse(text)
    except SecretError:
        return MASK
    return f"{secret.purpose},{masked_value(secret.value)}"


def masked_value(value: str) -> str:
    is_reference = value.startswith(REFERENCE) and _ENV_NAME.fullmatch(value.removeprefix(REFERENCE))
    return value if is_reference else MASK


def check_value(secret: Secret) -> None:
    """Whether a plain value can be sent; the refusal never shows it."""
    if not secret.value:
        raise SecretError("expected a value that is not empty")
    if secret.kind is Kind.HEADER and not _HEADER_VALUE.fullmatch(secret.value):
        raise SecretError("expected a header value of printable ASCII on one line")
    if secret.kind is Kind.BODY:
        body_fields(secret.value)


def body_fields(value: str) -> dict[str, Any]:
    """What a Body secret adds to the message."""
    try:
        fields = json.loads(value)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise SecretError("expected a JSON object as the value of a Body secret")
    if taken := sorted(fields.keys() & set(MESSAGE_FIELDS)):
        raise SecretError(f"expected names that the message does not use itself, not {', '.join(taken)}")
    return fields


def signing_key(secret: str) -> bytes:
    """The key inside `whsec_…`, as Standard Webhooks has it: 24 to 64 bytes in base64."""
    try:
        key = base64.b64decode(secret.removeprefix(SIGNING_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SIGNING_PREFIX) or not 24 <= len(key) <= 64:
        raise SecretError("expected whsec_ and 24 to 64 bytes in base64")
    return key


def _check_key(kind: Kind, key: str) -> None:
    if kind is Kind.HEADER and not _HEADER_NAME.fullmatch(key):
        raise SecretError("expected a header name between the commas")
    if kind is Kind.HEADER and (key.lower() in _OWN_HEADERS or key.lower().startswith(_OWN_PREFIXES)):
        raise SecretError(f"the header {key} cannot be set by a subscription")
    if kind is Kind.QUERY and not (key and len(key) <= 128 and key.isprintable()):
        raise SecretError("expected the name of a query parameter between the commas")
    if kind is Kind.BODY and key != "json":
        raise SecretError("expected `json` between the commas: the format of a Body secret")


def _kept(value: str, vault: Vault, purpose: str) -> str:
    if not value.startswith(REFERENCE):
        return vault.seal(value, purpose)
    if not _ENV_NAME.fullmatch(value.removeprefix(REFERENCE)):
        raise SecretError("expected the name of an environment variable after env:")
    return value


def _plain(value: str, vault: Vault, purpose: str) -> str:
    if value.startswith(SEALED):
        return vault.open(value, purpose)
    if value.startswith(REFERENCE):
        try:
            return resolve_secret(value).strip()
        except SettingsError as error:
            raise SecretError(str(error)) from None
    return value


def _fitting(text: str) -> str:
    if len(text) > MAX_STORED:
        raise SecretError("expected a shorter secret: about 1400 bytes fit")
    return text

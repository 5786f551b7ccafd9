"""The HTTP request of one attempt: the body that was fixed with the delivery's row, the secrets, and the signature."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

import httpx

from platform_defs.webhooks import masking, secrets, signing
from platform_defs.webhooks.encryption import Encryption
from platform_defs.webhooks.errors import SecretError
from platform_defs.webhooks.secrets import SecretKind

USER_AGENT = "platform-defs-webhooks/1"


@dataclass(frozen=True)
class DeliveryContent:
    """What the row of a delivery says about its request; the secrets are as they are stored."""

    webhook_id: str
    callback_url: str
    secret: str | None = field(repr=False)
    signing_secret: str | None = field(repr=False)
    body: str
    event_time: datetime


@dataclass(frozen=True)
class PostRequest:
    """One POST; `secret_spellings` must be masked in whatever is stored of its answer."""

    scheme: str
    host: str
    port: int
    target: bytes = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    secret_spellings: tuple[str, ...] = field(repr=False)


def build_request(content: DeliveryContent, encryption: Encryption, *, now: datetime) -> PostRequest:
    """The request with its secrets revealed and put where they belong: query, header or body."""
    url = httpx.URL(content.callback_url)
    target, text, extra_headers = url.raw_path, content.body, {}
    secret = None if content.secret is None else secrets.reveal_secret(content.secret, encryption)
    signing_secret = (
        None if content.signing_secret is None else secrets.reveal_signing_secret(content.signing_secret, encryption)
    )
    if secret is not None:
        match secret.kind:
            case SecretKind.QUERY:
                pair = f"{quote(secret.key, safe='')}={quote(secret.value, safe='')}"
                target += (b"&" if b"?" in target else b"?") + pair.encode("ascii")
            case SecretKind.HEADER:
                extra_headers[secret.key] = secret.value
            case SecretKind.BODY:
                text = _merge_body_secret(text, secret.value)
    body = text.encode()
    headers = {
        "Host": url.netloc.decode("ascii"),
        "User-Agent": USER_AGENT,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept-Encoding": "identity",
        "Connection": "close",
        **signing.headers(content.webhook_id, content.event_time, body, secret=signing_secret, now=now),
        **extra_headers,
    }
    return PostRequest(
        scheme=url.scheme,
        host=url.raw_host.decode("ascii"),
        port=url.port or (443 if url.scheme == "https" else 80),
        target=target,
        headers=tuple(headers.items()),
        body=body,
        secret_spellings=tuple(masking.spellings_of(secret, signing_secret)),
    )


def _merge_body_secret(text: str, value: str) -> str:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise SecretError("expected a message that is a JSON object: a Body secret adds fields to it")
    merged = message | secrets.body_fields(value, message_fields=message)
    return json.dumps(merged, ensure_ascii=False, separators=(",", ":"))

"""What is sent: the body, fixed when its row is written, and the request that an attempt makes of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

import httpx

from platform_defs.webhooks import masking, secrets, signing
from platform_defs.webhooks.encryption import Vault
from platform_defs.webhooks.secrets import Kind

EVENT = "KPI_UPDATED"
USER_AGENT = "platform-defs-webhooks/1"


@dataclass(frozen=True)
class Message:
    """A delivery as its row has it."""

    webhook_id: str
    callback_url: str
    secret: str | None = field(repr=False)
    signing_secret: str | None = field(repr=False)
    body: str
    event_time: datetime


@dataclass(frozen=True)
class Outgoing:
    """One HTTP request; `forms` are the spellings of its secrets, which must not be kept."""

    scheme: str
    host: str
    port: int
    target: bytes = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    forms: tuple[str, ...] = field(repr=False)


def notification(model_id: str, op_time: str, affected_kpi_ids: Sequence[str], at: datetime, zone: ZoneInfo) -> str:
    return json.dumps(
        {
            "event": EVENT,
            "modelId": model_id,
            "opTime": op_time,
            "affectedKpiIds": list(affected_kpi_ids),
            "timestamp": at.astimezone(zone).isoformat(timespec="seconds"),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def outgoing(message: Message, vault: Vault, *, now: datetime) -> Outgoing:
    """The request with its secrets in place."""
    url = httpx.URL(message.callback_url)
    target, body, extra = url.raw_path, message.body, {}
    revealed = None if message.secret is None else secrets.revealed(message.secret, vault)
    signed_with = None if message.signing_secret is None else secrets.revealed_signing(message.signing_secret, vault)
    if revealed is not None:
        match revealed.kind:
            case Kind.QUERY:
                pair = f"{quote(revealed.key, safe='')}={quote(revealed.value, safe='')}"
                target += (b"&" if b"?" in target else b"?") + pair.encode("ascii")
            case Kind.HEADER:
                extra[revealed.key] = revealed.value
            case Kind.BODY:
                merged = {**json.loads(body), **secrets.body_fields(revealed.value)}
                body = json.dumps(merged, ensure_ascii=False, separators=(",", ":"))
    content = body.encode()
    headers = {
        "Host": url.netloc.decode("ascii"),
        "User-Agent": USER_AGENT,
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        "Accept-Encoding": "identity",
        "Connection": "close",
        **signing.headers(message.webhook_id, message.event_time, content, secret=signed_with, now=now),
        **extra,
    }
    return Outgoing(
        scheme=url.scheme,
        host=url.raw_host.decode("ascii"),
        port=url.port or (443 if url.scheme == "https" else 80),
        target=target,
        headers=tuple(headers.items()),
        body=content,
        forms=tuple(masking.spellings(revealed, signed_with)),
    )

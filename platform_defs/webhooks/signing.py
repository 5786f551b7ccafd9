"""Headers of Standard Webhooks: id, timestamp and signature, by which a receiver verifies a message."""

import base64
import hashlib
import hmac
from datetime import datetime, timedelta

from platform_defs.webhooks.secrets import signing_key

# Usual verifiers refuse timestamps that are five minutes old, so a later attempt states its own time.
FRESH = timedelta(minutes=4)


def headers(webhook_id: str, event_time: datetime, body: bytes, *, secret: str | None, now: datetime) -> dict[str, str]:
    """While the message is fresh all attempts state the event's time, so that they are equal to the byte."""
    stated = event_time if abs(now - event_time) < FRESH else now
    timestamp = str(int(stated.timestamp()))
    known = {"webhook-id": webhook_id, "webhook-timestamp": timestamp}
    if secret is not None:
        content = f"{webhook_id}.{timestamp}.".encode() + body
        digest = hmac.new(signing_key(secret), content, hashlib.sha256).digest()
        known["webhook-signature"] = "v1," + base64.b64encode(digest).decode("ascii")
    return known

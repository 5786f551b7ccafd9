"""Standard Webhooks: the headers by which a receiver knows a message, its age and its sender."""

import base64
import hashlib
import hmac
from datetime import datetime, timedelta

from platform_defs.webhooks.secrets import signing_key

# Stock receivers refuse what is five minutes old: a message sent again later than this says when it is sent.
FRESH = timedelta(minutes=4)


def headers(webhook_id: str, event_time: datetime, body: bytes, *, secret: str | None, now: datetime) -> dict[str, str]:
    """One timestamp for all attempts of a message while it is fresh, so that they are the same to the byte."""
    stated = event_time if abs(now - event_time) < FRESH else now
    timestamp = str(int(stated.timestamp()))
    known = {"webhook-id": webhook_id, "webhook-timestamp": timestamp}
    if secret is not None:
        content = f"{webhook_id}.{timestamp}.".encode() + body
        digest = hmac.new(signing_key(secret), content, hashlib.sha256).digest()
        known["webhook-signature"] = "v1," + base64.b64encode(digest).decode("ascii")
    return known

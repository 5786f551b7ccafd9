"""What a source wrote when it refused a request: in one line for people, without anything that the credential added."""

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, quote_plus

import httpx

from platform_defs.logs import mask_secrets

MOST_CHARACTERS = 200
# Only texts that are written for whoever sent the request. A page of HTML is a browser's, and says little in one line.
_READABLE = ("application/json", "application/problem+json", "application/xml", "text/plain", "text/xml")
# A shorter value may be a number of pages, and would take digits out of the text.
_SHORTEST_SECRET = 4


def reason_given(response: httpx.Response | None, rendered: httpx.Request) -> str:
    """`; the source says: …`, or nothing if it says nothing that can be read.

    rendered: the request before the credential was added to it. A source may quote the request that it refuses, so
    everything that was sent beyond that is taken out of the text.
    """
    if response is None or response.headers.get("content-type", "").partition(";")[0].strip() not in _READABLE:
        return ""
    text = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", response.text).split())
    for secret in sorted(_added(response.request, rendered), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = mask_secrets(text)
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}…"
    return f"; the source says: {text}" if text else ""


def _added(sent: httpx.Request, rendered: httpx.Request) -> Iterator[str]:
    """What the rendered request does not have, as a source may quote it: encoded for a URL, or escaped for JSON."""
    for value in _values(sent) - _values(rendered):
        for word in {value, *value.split()}:
            if len(word) >= _SHORTEST_SECRET:
                yield from {word, quote(word), quote(word, safe=""), quote_plus(word), json.dumps(word)[1:-1]}


def _values(request: httpx.Request) -> set[str]:
    """The values of headers, of the query and of a form."""
    fields = parse_qsl(request.content.decode("utf-8", "replace"))
    return {*request.headers.values(), *request.url.params.values(), *(value for _, value in fields)}

"""What a source wrote when it refused a request: in one line for people, without anything that the credential added."""

import re
from collections.abc import Iterator

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
    what was sent beyond that is taken out of the text.
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
    """Values of headers and of the query that the rendered request does not have; of a header each word, too."""
    known = {*rendered.headers.values(), *rendered.url.params.values()}
    for value in {*sent.headers.values(), *sent.url.params.values()} - known:
        yield from (word for word in {value, *value.split()} if len(word) >= _SHORTEST_SECRET)

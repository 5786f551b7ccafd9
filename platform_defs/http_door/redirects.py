"""Where a redirect leads, and whether we go there."""

import httpx

from platform_defs.http_door.policy import Redirects

STATUSES = frozenset({301, 302, 303, 307, 308})
_METHODS = frozenset({"GET", "HEAD"})
# what a foreign origin may see: nothing that could be a credential
_HARMLESS_HEADERS = ("accept", "accept-encoding", "accept-language", "user-agent")


class NotFollowed(Exception):
    """The message says why; `location` is where it would have led, without its query."""

    def __init__(self, reason: str, location: str) -> None:
        super().__init__(reason)
        self.location = location


def url_without_query(url: httpx.URL) -> str:
    """A URL as it may be shown: keys and signatures are in queries, fragments and the user's part."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def origin_of(url: httpx.URL) -> str:
    default = {"http": 80, "https": 443}.get(url.scheme)
    port = "" if url.port in (None, default) else f":{url.port}"
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}"


def redirected_request(request: httpx.Request, response: httpx.Response, rules: Redirects, hops: int) -> httpx.Request:
    """The request that the redirect asks for; NotFollowed where it leads out of what the rules permit."""
    try:
        target = request.url.join(response.headers.get("location", ""))
    except (httpx.InvalidURL, ValueError):
        raise NotFollowed("its Location is no URL", "") from None
    shown = url_without_query(target)
    if request.method not in _METHODS:
        raise NotFollowed(f"a redirect of {request.method} is never followed", shown)
    if hops > rules.limit:
        raise NotFollowed(f"expected at most {rules.limit} redirects", shown)
    if target.scheme not in ("http", "https") or not target.host:
        raise NotFollowed("expected an http or https URL", shown)
    if origin_of(target) == origin_of(request.url):
        return httpx.Request(request.method, target, headers=_headers(request, tuple(request.headers)))
    if not rules.any_origin and origin_of(target) not in rules.origins:
        raise NotFollowed("it leads to another origin", shown)
    return httpx.Request(request.method, target, headers=_headers(request, _HARMLESS_HEADERS))


def _headers(request: httpx.Request, names: tuple[str, ...]) -> dict[str, str]:
    # the host is that of the new URL
    return {name: request.headers[name] for name in names if name in request.headers and name != "host"}

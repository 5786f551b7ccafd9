"""Authentication: turns a request's API key or gateway assertion into a principal, before its body is read."""

import asyncio
import ipaddress
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from fastapi import Request
from starlette.datastructures import Headers

from platform_defs.access.authenticator import KEY_CACHE_OUTAGE_S, Authenticator
from platform_defs.access.errors import KeyRefused, Unauthenticated
from platform_defs.access.principal import OPEN_PRINCIPAL, Principal
from platform_defs.api.http.errors import ApiError, store_down
from platform_defs.api.http.request_middleware import note_held
from platform_defs.api.http.threads import run_in_thread
from platform_defs.store.engine import is_refusal, is_unavailable

# Common lineage clients give up after 5 s: a caller must learn sooner that the database does not answer.
LOOKUP_TIMEOUT_S = 3.0
LOOKUP_THREADS = 16
# For so long after a lookup without an answer, further callers get 503 without one. Then one of them tries a lookup.
SILENCE_S = 1.0
# They are held so long before that: callers that ask again without a pause must not keep this process busy.
HOLD_S = 1.0
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="platform"'}

SECURITY_SCHEMES: Mapping[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key of `platform keys issue`."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "gatewayAssertion": {"type": "apiKey", "in": "header", "name": "X-Gateway-Assertion"},
}


class Lookups:
    """The lookups of one kind of credential, and why the last one got no answer, which the next callers are told too.

    Keys and assertions have one each. An assertion is also written down, so that a full disk or the right to one table
    may stop assertions alone, and callers with a key must not wait for them.
    """

    def __init__(self) -> None:
        self._failed = False
        self._refused = False
        self._next_at = 0.0

    @property
    def are_paused(self) -> bool:
        return self._failed and time.monotonic() < self._next_at

    @property
    def failure(self) -> ApiError:
        return store_down(refuses=self._refused)

    def begin(self) -> None:
        """After a failure one caller tries again, and the others wait for what it finds."""
        if self._failed:
            self._next_at = time.monotonic() + LOOKUP_TIMEOUT_S + SILENCE_S

    def fail(self, error: BaseException) -> None:
        self._failed, self._refused, self._next_at = True, is_refusal(error), time.monotonic() + SILENCE_S

    def succeed(self) -> None:
        self._failed = False

    def leave_to_next(self) -> None:
        """The database may not have been asked at all: an assertion that is forged is refused before that."""
        self._next_at = 0.0


def _is_no_answer(error: BaseException) -> bool:
    """Whether the database does not tell whose key it is, for now."""
    return isinstance(error, TimeoutError) or is_unavailable(error)


class RequestAuthentication:
    """Authenticates requests. Without an authenticator every caller on this machine acts for the demo tenant."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator
        self._limiter = CapacityLimiter(LOOKUP_THREADS)
        self._of_keys, self._of_assertions = Lookups(), Lookups()

    async def authenticate(self, request: Request) -> Principal:
        authenticator = self._authenticator
        if authenticator is None:
            _refuse_other_sites(request.headers)
            return OPEN_PRINCIPAL
        # An assertion has precedence over a key: a source behind the gateway must not replace the identity it asserts.
        token = request.headers.get("x-gateway-assertion")
        try:
            if token is not None:
                method, path = request.method, request.scope["raw_path"].decode("latin-1")
                return await self._look_up(
                    request,
                    self._of_assertions,
                    lambda: authenticator.authenticate_assertion(token, method=method, path=path),
                )
            key = _key_from_headers(request.headers)
            known = authenticator.cached_principal(key)
            if known is None and self._of_keys.are_paused:
                known = authenticator.cached_principal(key, KEY_CACHE_OUTAGE_S)
            if known is not None:
                return known
            try:
                return await self._look_up(request, self._of_keys, lambda: authenticator.authenticate_key(key))
            except Exception as error:
                if not _is_no_answer(error):
                    raise
                known = authenticator.cached_principal(key, KEY_CACHE_OUTAGE_S)
                if known is None:
                    raise
                return known
        except Unauthenticated as error:
            raise ApiError(401, str(error), headers=CHALLENGE) from None
        except TimeoutError:
            raise store_down() from None

    async def _look_up(self, request: Request, lookups: Lookups, lookup: Callable[[], Principal]) -> Principal:
        """Runs the lookup in a thread; raises why there is no answer, or was none a moment ago."""
        if lookups.are_paused:
            note_held(request)
            await asyncio.sleep(HOLD_S)
            if lookups.are_paused:
                raise lookups.failure
        lookups.begin()
        try:
            principal = await run_in_thread(lookup, seconds=LOOKUP_TIMEOUT_S, limiter=self._limiter)
        except KeyRefused:
            lookups.succeed()
            raise
        except Exception as error:
            if _is_no_answer(error):
                lookups.fail(error)
            else:
                lookups.leave_to_next()
            raise
        lookups.succeed()
        return principal


class RequiresScope:
    """A dependency of an endpoint: the authenticated principal, refused unless it has one of the scopes."""

    def __init__(self, *scopes: str) -> None:
        self.scopes = scopes

    async def __call__(self, request: Request) -> Principal:
        authentication: RequestAuthentication = request.app.state.authentication
        principal = await authentication.authenticate(request)
        request.state.principal = principal.name
        if not any(principal.may(scope) for scope in self.scopes):
            raise ApiError(403, f"expected a key with the scope {' or '.join(self.scopes)}; this one does not have it")
        return principal


def openapi_security(*scopes: str) -> dict[str, Any]:
    """The OpenAPI fields of a path that requires one of these scopes."""
    return {"security": [{name: []} for name in SECURITY_SCHEMES], "x-scopes": list(scopes)}


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _key_from_headers(headers: Headers) -> str:
    authorization = headers.get("authorization", "").strip()
    scheme, _, rest = authorization.partition(" ")
    key = rest.strip() if scheme.lower() == "bearer" else authorization
    key = key or headers.get("x-api-key", "").strip()
    if not key:
        raise ApiError(
            401, "expected `Authorization: Bearer <API key>` or a gateway's X-Gateway-Assertion", headers=CHALLENGE
        )
    return key


def _refuse_other_sites(headers: Headers) -> None:
    """Without keys, a page of another site that is open in a local browser must not be able to send requests here."""
    host = urlsplit(f"//{headers.get('host', 'localhost')}").hostname or ""
    origin = headers.get("origin")
    if not is_loopback(host) or (origin is not None and not is_loopback(urlsplit(origin).hostname or "")):
        raise ApiError(403, "expected a request from this machine: PLATFORM_AUTH=open serves loopback names only")

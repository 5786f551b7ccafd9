"""Credentials: a key, a bearer token, an OAuth2 token that is fetched and renewed, or a signing hook.

The Registry holds references (`env:NAME`, `file:PATH`); the secret is read when a request is made and kept nowhere.

A plan's snapshot fixes which credential is used and how it is sent. Which secret that credential refers to is what the
Registry says now: a plan whose key was rotated must not go on asking with the old one.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points

import httpx
from sqlalchemy import Connection, Engine, select

from platform_defs.errors import SettingsError
from platform_defs.http_door.door import Door
from platform_defs.http_door.errors import DoorError, Exhausted, HeldBack, TransientError
from platform_defs.http_door.policy import Passage
from platform_defs.ingest.codes import AuthType, ErrorLevel, Location
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.registry.rows import ACTIVE, CLOCK_TOLERANCE, Row
from platform_defs.ingest.registry.sections import key_columns
from platform_defs.ingest.spec.model import AuthSpec
from platform_defs.settings import resolve_secret
from platform_defs.store.engine import read
from platform_defs.store.tables.registry import reg_prov_credential

# Plug-ins that sign requests: a function from a request and the credential's secret to the request to send.
SIGNING_HOOKS = "platform_defs.signing_hooks"
# A token is renewed this long before it runs out.
RENEW_BEFORE_S = 30.0
DEFAULT_TOKEN_S = 300.0
# An executor that serves for days asks the Registry again this often which secret a credential refers to.
REREAD_S = 30.0
_log = logging.getLogger(__name__)

SigningHook = Callable[[httpx.Request, str | None], httpx.Request]


@cache
def signing_hook(name: str) -> SigningHook:
    for found in entry_points(group=SIGNING_HOOKS):
        if found.name == name:
            hook: SigningHook = found.load()
            return hook
    raise fatal("NO_SIGNING_HOOK", f"no signing hook is named {name!r}: install the package that brings it")


def fatal(code: str, message: str) -> ResponseError:
    return ResponseError(ErrorLevel.FATAL, code, message)


@dataclass
class Credential:
    """Adds the spec's credential to each attempt of a request; thread-safe."""

    engine: Engine
    auth: AuthSpec
    door: Door
    passage: Passage
    clock: Callable[[], float] = time.monotonic
    _row: Row | None = field(default=None, init=False)
    _read_again_at: float = field(default=0.0, init=False)
    _row_lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _token: str | None = field(default=None, init=False)
    _token_until: float = field(default=0.0, init=False)
    # the row whose token it is
    _token_of: int | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def prepare(self, request: httpx.Request, last: httpx.Response | None) -> httpx.Request:
        """For the door's `prepare`: called before every attempt with the answer to the one before it."""
        match self.auth.type:
            case AuthType.NONE:
                return self._signed(request)
            case AuthType.API_KEY:
                return self._signed(_with_key(request, self.auth, self._secret()))
            case AuthType.BEARER:
                request.headers["Authorization"] = f"Bearer {self._secret()}"
                return self._signed(request)
            case AuthType.OAUTH2:
                is_refused = last is not None and last.status_code == 401
                request.headers["Authorization"] = f"Bearer {self._oauth_token(renew=is_refused)}"
                return self._signed(request)
            case AuthType.CUSTOM:
                return self._signed(request)

    def _signed(self, request: httpx.Request) -> httpx.Request:
        if self.auth.signing_hook is None:
            return request
        secret = self._secret() if self.auth.credential_id is not None else None
        try:
            return signing_hook(self.auth.signing_hook)(request, secret)
        except ResponseError:
            raise
        except Exception as error:
            raise fatal("SIGNING_FAILED", f"the signing hook {self.auth.signing_hook} failed: {error}") from error

    def _credential_row(self) -> Row:
        with self._row_lock:
            if self._row is None or self.clock() >= self._read_again_at:
                found = read(self.engine, self._row_in_effect)
                if self._row is not None and self._row["id"] != found["id"]:
                    _log.warning("the credential %r has changed in the Registry", self.auth.credential_alias)
                self._row, self._read_again_at = found, self.clock() + REREAD_S
            return self._row

    def _row_in_effect(self, connection: Connection) -> Row:
        """The youngest row that has taken the place of the snapshot's and is sent in the same way.

        Where the credential was removed, or is now sent in another way, plans that have it keep its last such row.
        """
        table = reg_prov_credential.c
        query = select(reg_prov_credential).where(table.id == self.auth.credential_id)
        own = connection.execute(query).mappings().one_or_none()
        if own is None:
            raise fatal("NO_CREDENTIAL", f"the Registry has no credential {self.auth.credential_alias!r} any more")
        same = (*key_columns(reg_prov_credential), "auth_type_code", "location_code", "field_name")
        begun = table.effective_from <= datetime.now(UTC) + CLOCK_TOLERANCE
        heirs = select(reg_prov_credential).where(
            begun,
            table.lifecycle_status_code == ACTIVE,
            *(table[name].is_not_distinct_from(own[name]) for name in same),
        )
        heir = connection.execute(heirs.order_by(table.effective_from.desc(), table.id.desc()).limit(1))
        return dict(heir.mappings().one_or_none() or own)

    def _secret(self) -> str:
        return self._resolved(self._credential_row()["secret_ref"])

    def _resolved(self, reference: str | None) -> str:
        if not reference:
            raise fatal("NO_SECRET", f"the credential {self.auth.credential_alias!r} refers to no secret")
        try:
            return resolve_secret(reference)
        except SettingsError as error:
            raise fatal("NO_SECRET", f"credential {self.auth.credential_alias!r}: {error}") from None

    def _oauth_token(self, *, renew: bool) -> str:
        with self._lock:
            row = self._credential_row()
            is_old = self.clock() > self._token_until - RENEW_BEFORE_S or self._token_of != row["id"]
            if self._token is None or renew or is_old:
                self._token, seconds = self._fetch_token(row)
                self._token_until, self._token_of = self.clock() + seconds, row["id"]
            return self._token

    def _fetch_token(self, row: Row) -> tuple[str, float]:
        """By the client-credentials grant, through the same door as every other request.

        A token server that does not answer is waited for like its source; one that refuses is a matter for an operator.
        """
        form = {"grant_type": "client_credentials", "client_id": self._resolved(row["client_id_ref"])}
        form |= {"client_secret": self._resolved(row["secret_ref"])}
        form |= {"scope": row["oauth_scope"]} if row["oauth_scope"] else {}
        try:
            exchange = self.door.send(httpx.Request("POST", row["token_url"], data=form), self.passage)
            answer = exchange.response.json()
            return str(answer["access_token"]), float(answer.get("expires_in") or DEFAULT_TOKEN_S)
        except (DoorError, ValueError, KeyError, TypeError) as error:
            reason = str(error) if isinstance(error, DoorError) else "the answer holds no access_token"
            message = f"no OAuth2 token for {self.auth.credential_alias!r}: {reason}"
            if isinstance(error, HeldBack | Exhausted | TransientError):
                until = error.until if isinstance(error, HeldBack) else None
                raise ResponseError(ErrorLevel.TRANSIENT, "NO_TOKEN", message, not_before=until) from None
            raise fatal("NO_TOKEN", message) from None


def _with_key(request: httpx.Request, auth: AuthSpec, secret: str) -> httpx.Request:
    name = auth.field_name or "api_key"
    match auth.location:
        case Location.HEADER:
            request.headers[name] = secret
            return request
        case Location.BODY:
            content = (
                request.content
                + (b"&" if request.content else b"")
                + httpx.QueryParams({name: secret}).__str__().encode()
            )
            return httpx.Request(request.method, request.url, headers=_headers_without_length(request), content=content)
        case _:
            url = request.url.copy_merge_params({name: secret})
            return httpx.Request(request.method, url, headers=request.headers, content=request.content)


def _headers_without_length(request: httpx.Request) -> httpx.Headers:
    headers = httpx.Headers(request.headers)
    headers.pop("Content-Length", None)
    return headers

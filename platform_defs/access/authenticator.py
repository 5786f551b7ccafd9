"""Turns a credential into a principal. Keys are cached for seconds; an assertion asks the database each time."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.access.assertions import Assertion, Gateway, delete_expired_ids, mark_used, verify_assertion
from platform_defs.access.errors import AssertionRefused
from platform_defs.access.keys import StoredKey, accept_key, find_key, parse_public_id
from platform_defs.access.principal import Principal
from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.errors import StoreError, one_line
from platform_defs.store.metadata import now

log = logging.getLogger(__name__)

# A revoked key may work for this long; in exchange a busy key costs one query in this time, not one per request.
KEY_CACHE_S = 5.0
# While the database does not answer, cached keys work for longer: nobody can revoke a key meanwhile either.
KEY_CACHE_OUTAGE_S = 60.0
CACHED_KEYS = 10_000
DELETE_INTERVAL_S = 60.0


@dataclass(frozen=True)
class _CachedKey:
    stored: StoredKey
    since: float


class Authenticator:
    """Every method but `cached_principal` may wait for the database; call those outside the event loop."""

    def __init__(self, engine: Engine, gateway: Gateway | None, clock: Callable[[], datetime] = now) -> None:
        self._engine = engine
        self._gateway = gateway
        self._clock = clock
        self._keys: dict[str, _CachedKey] = {}
        self._delete_at = time.monotonic() + DELETE_INTERVAL_S
        self._delete_lock = threading.Lock()

    def cached_principal(self, key: str, seconds: float = KEY_CACHE_S) -> Principal | None:
        """The principal of a key that was looked up at most `seconds` ago; None if the database must be asked."""
        known = self._keys.get(parse_public_id(key))
        if known is None or known.since + seconds < time.monotonic():
            return None
        return accept_key(key, known.stored)

    def authenticate_key(self, key: str) -> Principal:
        """Asks the database and caches what it says; raises KeyRefused, and forgets a key that was revoked."""
        public_id = parse_public_id(key)
        asked = time.monotonic()
        stored = find_key(self._engine, public_id)
        if stored is None or stored.revoked_at is not None:
            self._keys.pop(public_id, None)
        principal = accept_key(key, stored)
        # only accepted keys are cached: guessed keys must not fill the cache
        if stored is not None:
            if len(self._keys) >= CACHED_KEYS:
                self._keys = {}
            self._keys[public_id] = _CachedKey(stored, asked)
        return principal

    def authenticate_assertion(self, token: str, *, method: str, path: str) -> Principal:
        if self._gateway is None:
            raise AssertionRefused("token", "no gateway is configured here; expected an API key instead")
        assertion = verify_assertion(self._gateway, token, method=method, path=path, now=self._clock())
        tenant = self._tenant_of(assertion)
        mark_used(self._engine, assertion)
        self._delete_expired_sometimes()
        source_type, name = assertion.source_type, assertion.tenant_name
        return Principal("assertion", assertion.subject, assertion.scopes, source_type, tenant, name)

    def _tenant_of(self, assertion: Assertion) -> Tenant | None:
        """The tenant as it is on record; a tenant that is not on record must come with its code and name."""
        if assertion.tenant_id is None:
            return None
        known = find_tenant(self._engine, assertion.tenant_id)
        if known is None:
            if assertion.tenant_code is None or assertion.tenant_name is None:
                raise AssertionRefused("tenantId", "expected a tenant on record, or tenantCode and tenantName with it")
            return Tenant(assertion.tenant_id, assertion.tenant_code, assertion.tenant_name)
        if assertion.tenant_code not in (None, known.code):
            raise AssertionRefused("tenantCode", "expected the code that is on record for tenantId")
        return known

    def _delete_expired_sometimes(self) -> None:
        with self._delete_lock:
            if time.monotonic() < self._delete_at:
                return
            self._delete_at = time.monotonic() + DELETE_INTERVAL_S
        try:
            delete_expired_ids(self._engine, self._clock())
        except (StoreError, SQLAlchemyError) as error:
            log.warning("ids of expired assertions could not be removed; tried again in a minute: %s", one_line(error))

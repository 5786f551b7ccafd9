"""Turns a credential into a principal: keys through a short memory, assertions against the database each time."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.access.assertions import Assertion, Gateway, prune_used, use_once, verify_assertion
from platform_defs.access.errors import AssertionRefused
from platform_defs.access.keys import StoredKey, accept_key, find_key, public_id_of
from platform_defs.access.principal import Principal
from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.errors import StoreError
from platform_defs.store.metadata import now

log = logging.getLogger(__name__)

# A revoked key may work this much longer; in exchange the hot path asks the database once per key and interval.
KEY_MEMORY_S = 5.0
# While the database does not answer, what it said last holds for longer: nothing can be revoked meanwhile either.
KEY_MEMORY_AWAY_S = 60.0
REMEMBERED_KEYS = 10_000
PRUNE_INTERVAL_S = 60.0


@dataclass(frozen=True)
class _Remembered:
    stored: StoredKey
    since: float


class Authenticator:
    """Every method but `remembered` may wait for the database; call those off the event loop."""

    def __init__(self, engine: Engine, gateway: Gateway | None, clock: Callable[[], datetime] = now) -> None:
        self._engine = engine
        self._gateway = gateway
        self._clock = clock
        self._keys: dict[str, _Remembered] = {}
        self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
        self._prune_lock = threading.Lock()

    def remembered(self, key: str, seconds: float = KEY_MEMORY_S) -> Principal | None:
        """The caller of a key that was looked up a moment ago, without touching the database."""
        known = self._keys.get(public_id_of(key))
        if known is None or known.since + seconds < time.monotonic():
            return None
        return accept_key(key, known.stored)

    def by_key(self, key: str) -> Principal:
        public_id = public_id_of(key)
        asked = time.monotonic()
        stored = find_key(self._engine, public_id)
        if stored is None or stored.revoked_at is not None:
            self._keys.pop(public_id, None)
        principal = accept_key(key, stored)
        # only keys that were accepted are remembered: guesses must not fill the memory
        if stored is not None:
            if len(self._keys) >= REMEMBERED_KEYS:
                self._keys = {}
            self._keys[public_id] = _Remembered(stored, asked)
        return principal

    def by_assertion(self, token: str, *, method: str, path: str) -> Principal:
        if self._gateway is None:
            raise AssertionRefused("token", "no gateway is configured here; expected an API key instead")
        assertion = verify_assertion(self._gateway, token, method=method, path=path, now=self._clock())
        tenant = self._tenant_of(assertion)
        use_once(self._engine, assertion)
        self._prune_sometimes()
        return Principal("assertion", assertion.subject, assertion.scopes, assertion.source_type, tenant)

    def _tenant_of(self, assertion: Assertion) -> Tenant | None:
        """The record decides what a tenant is called; a tenant that is not on record must come with code and name."""
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

    def _prune_sometimes(self) -> None:
        with self._prune_lock:
            if time.monotonic() < self._prune_at:
                return
            self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
        try:
            prune_used(self._engine, self._clock())
        except (StoreError, SQLAlchemyError):
            log.warning("ids of expired assertions could not be removed; tried again in a minute", exc_info=True)

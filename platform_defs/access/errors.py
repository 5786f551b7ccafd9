"""Errors of access: tenants, keys and gateway assertions.

AccessError
├── TenantError            a tenant that contradicts the one on record, or cannot be stored
├── KeyRequestError        a key that cannot be issued or revoked as asked
└── Unauthenticated        the caller is not known; the message says what was expected, never what was sent
    ├── KeyRefused         no such key, or revoked
    └── AssertionRefused   a gateway assertion that is wrong, expired, replayed or meant for another request
"""

from platform_defs.errors import AccessError


class TenantError(AccessError):
    """A tenant contradicts the one on record; `field` names where."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class KeyRequestError(AccessError):
    """A key cannot be issued or revoked as asked."""


class Unauthenticated(AccessError):
    """Who is asking could not be established."""


class KeyRefused(Unauthenticated):
    """No such key, or it is revoked."""


class AssertionRefused(Unauthenticated):
    """A gateway assertion that this request cannot use; `claim` names what is wrong with it."""

    def __init__(self, claim: str, message: str) -> None:
        super().__init__(f"X-Gateway-Assertion: {claim}: {message}")
        self.claim = claim

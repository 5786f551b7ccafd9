"""What can be wrong with an event; each error knows how the wire answers it.

LineageError
└── EventRefused               this event cannot be taken, now or later; `field` names what is wrong with it
    ├── InvalidEvent           400: not an event that the stores can hold without losing meaning
    └── TenantRefused          the tenant of the event cannot be told, or is not the caller's
        ├── TenantMissing      400: neither the event nor the credential names a tenant
        ├── TenantUnknown      400: the tenant that is named is not on record, and the event does not introduce it
        ├── TenantContradicted 400: the event contradicts itself or the record about its tenant
        └── TenantForbidden    403: the event belongs to another tenant than the caller's
"""

from platform_defs.errors import PlatformError


class LineageError(PlatformError):
    """The lineage system could not do what was asked."""


class EventRefused(LineageError):
    """The event is refused for what it is; sending it again changes nothing."""

    code = 400
    status = "bad_request"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class InvalidEvent(EventRefused):
    """Something that an event must have is missing, malformed, or more than a store can hold."""


class TenantRefused(EventRefused):
    """The event cannot be given to a tenant."""


class TenantMissing(TenantRefused):
    """No tenant signal where one is required."""


class TenantUnknown(TenantRefused):
    """A tenant that is not on record, and not introduced with id, code and name."""


class TenantContradicted(TenantRefused):
    """Two statements about the tenant exclude each other."""


class TenantForbidden(TenantRefused):
    """The event belongs to another tenant than the authenticated one."""

    code = 403
    status = "forbidden"

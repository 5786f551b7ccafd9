"""Errors of the lineage system.

PlatformError (platform_defs/errors.py)
└── LineageError                   an operation of the lineage system failed, such as a rebuild
    ├── NameNotFound               no table or column has the name that a person asked for
    ├── AmbiguousName              several have it; `meanings` are their names
    └── EventRefused               the event can be accepted neither now nor later; `field` names what is wrong
        ├── InvalidEvent           400: the event is malformed, or no store can hold it unchanged
        └── TenantRefused          400: the event can be given to no tenant
            ├── TenantMissing      400: neither the event nor the credential names a tenant
            ├── TenantUnknown      400: the named tenant is not on record, and the event does not introduce it
            ├── TenantContradicted 400: statements about the tenant, in the event or on record, contradict each other
            └── TenantForbidden    403: the event names another tenant than the one of the credential

Not errors of a caller, and so not in this tree: NeedsRebuild (merge/state.py), by which the merge tells the sink and
the recovery that a tenant's graph must be rebuilt.
"""

from collections.abc import Sequence

from platform_defs.errors import PlatformError


class LineageError(PlatformError):
    """An operation of the lineage system failed."""


class NameNotFound(LineageError):
    """No table or column has this name."""

    def __init__(self, name: str, namespace: str | None) -> None:
        place = "" if namespace is None else f" in {namespace!r}"
        super().__init__(f"no table or column is called {name!r}{place}; `platform lineage search TEXT` finds some")


class AmbiguousName(LineageError):
    """Several tables or columns have this name."""

    def __init__(self, name: str, meanings: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"{name!r} could mean {len(meanings)} of them: say more of the name, or which --namespace it is in"
        )
        # qualified name and namespace of each
        self.meanings = list(meanings)


class EventRefused(LineageError):
    """The event is refused because of its content; sending it again would not help. `code` is the HTTP status."""

    code = 400
    status = "bad_request"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class InvalidEvent(EventRefused):
    """A required part of the event is missing or malformed, or a store cannot hold it."""


class TenantRefused(EventRefused):
    """The event can be given to no tenant."""


class TenantMissing(TenantRefused):
    """The event must name a tenant, or its credential must, but neither does."""


class TenantUnknown(TenantRefused):
    """The tenant is not on record, and the event does not introduce it with id, code and name."""


class TenantContradicted(TenantRefused):
    """Two statements about the tenant contradict each other."""


class TenantForbidden(TenantRefused):
    """The event names another tenant than the one of the credential."""

    code = 403
    status = "forbidden"

"""Which environment variables a subscription made over HTTP may refer to: those named after its key's tenant."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


def tenant_prefix(code: str, codes: Iterable[str]) -> str | None:
    """`WEBHOOK_ACME__` for the code `acme`: the variables of that tenant begin with it.

    Two underscores end the code, and a code has never two of them in a row: otherwise the tenant A could read
    variables of the tenant A_B. None if the code has no letter or digit, or if another code comes out equal.
    """
    name = _variable_part(code)
    equal = {other for other in codes if _variable_part(other) == name} | {code}
    return f"WEBHOOK_{name}__" if name and len(equal) == 1 else None


def may_tenant_reference(code: str, codes: Iterable[str]) -> Callable[[str], bool]:
    prefix = tenant_prefix(code, codes)
    return lambda name: prefix is not None and name.startswith(prefix) and len(name) > len(prefix)


def may_reference_patterns(patterns: str) -> Callable[[str], bool]:
    """For keys without a tenant: what PLATFORM_WEBHOOK_ENV names, but never a setting of the platform."""
    named = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    return lambda name: not name.startswith("PLATFORM_") and any(fnmatchcase(name, pattern) for pattern in named)


@dataclass(frozen=True)
class TeamReference:
    """A subscription of a tenant that refers to an environment variable."""

    subscription_id: int
    code: str
    variable: str


def why_foreign(reference: TeamReference, codes: Iterable[str]) -> str | None:
    """Why a tenant may not refer to this variable over HTTP; None if it may."""
    known = list(codes)
    if may_tenant_reference(reference.code, known)(reference.variable):
        return None
    prefix = tenant_prefix(reference.code, known)
    if prefix is None:
        return f"{reference.code} has no variables: its code has no letter, or comes out equal to another tenant's"
    return f"{reference.variable} is no variable of {reference.code}, which begin with {prefix}"


def _variable_part(code: str) -> str:
    return re.sub("[^A-Z0-9]+", "_", code.upper()).strip("_")

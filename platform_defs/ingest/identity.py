"""Numbers and namespaces that are the same for the same name on every machine."""

import hashlib

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import NamespaceScope, Operation

_NUMBER_BITS = 60  # so that every store keeps it exactly


def id_number(provider_id: str) -> int:
    """A number of a record's id, spread evenly: its remainder is the record's update bucket."""
    digest = hashlib.sha256(provider_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _NUMBER_BITS)


def cursor_namespace(operation: Operation, endpoint_name: str, plan_id: int | None) -> tuple[NamespaceScope, str]:
    """Scope and key of a cursor's namespace.

    A harvest has one watermark per endpoint, whatever its expressions become. A backfill or an update has one per plan
    and can never touch the harvest's.
    """
    if operation is Operation.HARVEST:
        return NamespaceScope.EXPR, canonical_hash({"endpoint": endpoint_name})
    return NamespaceScope.CUSTOM, canonical_hash({"endpoint": endpoint_name, "plan": plan_id})

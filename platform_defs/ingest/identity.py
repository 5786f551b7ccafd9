"""Numbers and namespaces that are the same for the same name on every machine."""

import hashlib

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import NamespaceScope, Operation

_NUMBER_BITS = 60  # so that every store keeps it exactly


def id_number(provider_id: str) -> int:
    """A number made from a record's id, evenly spread: its remainder by the number of buckets is the update bucket."""
    digest = hashlib.sha256(provider_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _NUMBER_BITS)


def cursor_namespace(operation: Operation, endpoint_name: str, plan_id: int | None) -> tuple[NamespaceScope, str]:
    """Scope and key of a cursor's namespace.

    A harvest has one watermark per endpoint, which stays the same when the endpoint's expressions change. A backfill or
    an update has a cursor of its own for each plan, so that it can never move the harvest's watermark.
    """
    if operation is Operation.HARVEST:
        return NamespaceScope.EXPR, canonical_hash({"endpoint": endpoint_name})
    return NamespaceScope.CUSTOM, canonical_hash({"endpoint": endpoint_name, "plan": plan_id})

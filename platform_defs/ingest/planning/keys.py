"""The keys by which a plan and a task are found again, so that asking twice makes one."""

from collections.abc import Mapping
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.planning.slices import SliceDraft
from platform_defs.ingest.planning.windows import Window

MAX_PLAN_KEY = 128
_HASH_DIGITS = 16


def window_plan_prefix(provenance_code: str, endpoint_name: str, operation: Operation, window: Window) -> str:
    """What all generations of a window's plan have in common."""
    return _bounded_prefix(f"{provenance_code}:{endpoint_name}:{operation}:{_text(window.start)}:{_text(window.end)}")


def bucket_plan_prefix(provenance_code: str, endpoint_name: str, bucket: int, buckets: int) -> str:
    """What all generations of an update bucket's plan have in common."""
    return _bounded_prefix(f"{provenance_code}:{endpoint_name}:{Operation.UPDATE}:b{bucket}of{buckets}")


def plan_key(prefix: str, generation: int) -> str:
    return f"{prefix}:g{generation}"


def next_generation(key: str) -> str:
    """The key of the plan that takes the place of this one."""
    prefix, _, number = key.rpartition(":g")
    return plan_key(prefix, int(number) + 1)


def task_key(
    draft: SliceDraft, operation: Operation, trigger: Trigger, params: Mapping[str, Any], plan_key: str
) -> str:
    """The seed's 5.3.5: the same slice asked for twice is one task; another plan, or its next generation, asks anew.

    A slice does not tell all that tells plans apart: bucket 0 of 16 and bucket 0 of 32 may have the same ids.
    """
    return canonical_hash([draft.signature, draft.expr_hash, operation, trigger, params, plan_key])


def _bounded_prefix(text: str) -> str:
    """Readable where it fits; codes that are too long end in a hash of the whole."""
    room = MAX_PLAN_KEY - len(":g999999")
    return text if len(text) <= room else f"{text[: room - _HASH_DIGITS - 1]}~{canonical_hash(text)[:_HASH_DIGITS]}"


def _text(instant: Any) -> str:
    return f"{instant:%Y%m%dT%H%M%SZ}"

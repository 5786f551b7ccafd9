"""The check `complete`: which windows or buckets that were begun are not complete, why, and what to do about it."""

from collections.abc import Iterator, Sequence
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    multi_asset_check,
)
from sqlalchemy import Engine

from assets.ingest.names import COMPLETE, asset_key
from assets.op_names import op_name
from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.ledger.windows import OpenPartition, open_buckets, open_windows
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.blocks import why_not_asked
from resources.database import DatabaseResource

# So many are named; `platform ingest windows` lists all of them.
MOST_NAMED = 20
# What to do about a partition that is not complete.
AGAIN = {
    Operation.HARVEST: "The planner tries it again after 15 minutes; materialising it tries it now.",
    Operation.BACKFILL: "Materialise what failed and is missing: nothing else tries a backfill's window again.",
    Operation.UPDATE: "Materialise it again; records that somebody asked for are tried again after 15 minutes.",
}
WAIT = (
    "It is under way: its run says how far it is, and what nobody works on is taken up within a minute or two, or when"
    " its source may be asked again."
)
# Of a run that ends before its partition is complete, because its source may not be asked for hours.
GOES_ON = "What waits is fetched by itself when it is due, and its partition is materialised then."
# What to do about one that somebody cancelled.
BEGIN_ANEW = "It stays cancelled until somebody materialises it, which begins it anew."


def complete_check(spec: Spec) -> AssetChecksDefinition:
    """Fails while any window or bucket that was begun is not complete, whichever one the last run was about."""
    key = asset_key(spec.provenance_code, spec.endpoint_name, spec.operation)
    name = op_name(spec.provenance_code, spec.endpoint_name, spec.operation.lower(), COMPLETE)

    @multi_asset_check(name=name, specs=[AssetCheckSpec(COMPLETE, asset=key, description=complete_check.__doc__)])
    def check(database: DatabaseResource) -> Iterator[AssetCheckResult]:
        yield AssetCheckResult(**check_outcome(database.engine, spec))

    return check


def check_outcome(engine: Engine, spec: Spec) -> dict[str, Any]:
    """What the check says now."""
    names = (spec.provenance_code, spec.endpoint_name)
    if spec.operation is Operation.UPDATE:
        found: Sequence[OpenPartition] = open_buckets(engine, *names, spec.update_buckets)
    else:
        found = open_windows(engine, *names, spec.operation, begins=spec.window.start)
    return complete_outcome(spec.operation, found, why_not_asked(engine, *names))


def complete_outcome(operation: Operation, found: Sequence[OpenPartition], waits_for: str | None) -> dict[str, Any]:
    """What an evaluation of the check says; `waits_for` is what keeps the endpoint from being asked."""
    what = "bucket" if operation is Operation.UPDATE else "window"
    if not found:
        return {"passed": True, "description": f"every {what} that was begun is complete", "metadata": {}}
    count = f"1 {what} is" if len(found) == 1 else f"{len(found)} {what}s are"
    # nothing is wrong with what was begun and not given up
    is_under_way = all(each.is_under_way and not each.reason for each in found) and not waits_for
    reasons = {each.plan_key: each.reason or "no error was recorded" for each in found[:MOST_NAMED]}
    return {
        "passed": False,
        "severity": AssetCheckSeverity.WARN if is_under_way else AssetCheckSeverity.ERROR,
        "description": f"{count} not complete: {_named(found)}. {waits_for or _advice(operation, found)}",
        "metadata": {f"{what}s": len(found), "plans": reasons},
    }


def _advice(operation: Operation, found: Sequence[OpenPartition]) -> str:
    if all(each.is_under_way for each in found):
        return WAIT
    return BEGIN_ANEW if {each.status for each in found} == {PlanStatus.CANCELLED} else AGAIN[operation]


def _named(found: Sequence[OpenPartition]) -> str:
    """Each with its state and reason; those that share both are named together."""
    groups: dict[tuple[PlanStatus, str | None], list[str]] = {}
    for each in found[:MOST_NAMED]:
        groups.setdefault((each.status, each.reason), []).append(each.name)
    parts = [
        f"{', '.join(names)} ({status})" + (f": {reason.rstrip('.')}" if reason else "")
        for (status, reason), names in groups.items()
    ]
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return "; ".join([*parts, *more])

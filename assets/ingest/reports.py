"""What Dagster shows of a window or bucket: counts, pages, rate limiting, cursor, a plot of records per slice."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dagster import AssetMaterialization, AssetRecordsFilter, DagsterInstance, MetadataValue

from assets.ingest.names import asset_key
from assets.ingest.partitions import partition_key
from platform_defs.ingest.ledger.windows import PlanReport
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.model import Spec

NOTHING_DUE = "no record of this bucket is stale, was made by other expressions or was asked for by a signal"
MORE_IS_DUE = "this was as much as one plan takes: materialise the bucket again for the rest, or wait for its next day"
_PLOT_WIDTH = 40
_PLOT_ROWS = 50
# The newest materialisations of a partition: it is not fetched again so often within the minutes of an outage.
_LOOKED_AT = 20


def materialization(
    report: PlanReport, partition: str, *, before: datetime | None = None, after: datetime | None = None
) -> AssetMaterialization:
    key = asset_key(report.provenance_code, report.endpoint_name, report.operation)
    return AssetMaterialization(key, partition=partition, metadata=plan_metadata(report, before=before, after=after))


def plan_metadata(
    report: PlanReport, *, before: datetime | None = None, after: datetime | None = None
) -> dict[str, Any]:
    totals = report.totals
    found: dict[str, Any] = {
        # what the window or bucket has, whether or not any of it is new
        "dagster/row_count": sum(report.records_by_slice.values()),
        "records inserted": totals.get("inserted", 0),
        "records updated": totals.get("updated", 0),
        "records unchanged": totals.get("skipped", 0),
        **({"records of other windows": totals.get("outside", 0)} if report.window is not None else {}),
        "set aside": totals.get("failed", 0),
        "pages": report.pages,
        "requests": totals.get("reqCount", 0),
        "429 answers": totals.get("429Count", 0),
        "retries": totals.get("retryCount", 0),
        "plan": report.plan_key,
        "records per slice": MetadataValue.md(_plot(report.records_by_slice)),
    }
    if report.set_aside:
        found["set aside because"] = MetadataValue.md("\n".join(f"- {each}" for each in report.set_aside))
    if report.window is None and not report.pages:
        found["nothing to do"] = NOTHING_DUE
    if report.due:
        found["asked for by signals"] = report.due["signalled"]
        found["stale or of other expressions"] = report.due["staleOrOutdated"]
        if not report.due["isAll"]:
            found["more is due"] = MORE_IS_DUE
    if report.cuts:
        found["slices cut"] = "; ".join(report.cuts)
    if before is not None:
        found["cursor before"] = MetadataValue.timestamp(before)
    if after is not None:
        found["cursor after"] = MetadataValue.timestamp(after)
    return found


def is_materialised(instance: DagsterInstance, report: PlanReport, partition: str) -> bool:
    """Whether Dagster was told of this very plan: its partition may have been fetched again since then."""
    key = asset_key(report.provenance_code, report.endpoint_name, report.operation)
    wanted = AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    told = [record.asset_materialization for record in instance.fetch_materializations(wanted, _LOOKED_AT).records]
    return any(each is not None and each.metadata["plan"].value == report.plan_key for each in told)


def partition_of(report: PlanReport, spec: Spec) -> str:
    """The partition key of a plan's window or bucket."""
    return partition_key(spec, report.window if report.window is not None else report.bucket or 0)


def is_partition(report: PlanReport, spec: Spec) -> bool:
    """Whether the endpoint still has the plan's partition: its windows or buckets may be others by now."""
    if report.window is None:
        return report.buckets == spec.update_buckets
    grid = WindowGrid.of(spec.window)
    return report.window.start >= grid.start and grid.window_at(report.window.start) == report.window


def _plot(records: Mapping[int, int]) -> str:
    """A bar a slice, as text that the UI shows as it is."""
    if not records:
        return "no records"
    most = max(1, max(records.values()))
    lines = [f"{number:>4} {'█' * round(_PLOT_WIDTH * count / most)} {count}" for number, count in records.items()]
    more = [f"… and {len(lines) - _PLOT_ROWS} more slices"] if len(lines) > _PLOT_ROWS else []
    return "\n".join(["```", *lines[:_PLOT_ROWS], *more, "```"])

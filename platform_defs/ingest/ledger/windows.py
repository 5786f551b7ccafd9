"""How the windows and buckets of an endpoint stand: the newest plan of each, and what it brought."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, case, func, select

from platform_defs.ingest.codes import BatchStatus, Operation, PlanStatus, SliceStatus, TaskStatus
from platform_defs.ingest.cursors.watermark import contiguous_end
from platform_defs.ingest.errors import PlanError
from platform_defs.ingest.planning.keys import next_generation
from platform_defs.ingest.planning.windows import Window
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task, ing_task_run_batch

# The reasons of no more open windows than this are looked up.
MOST_REASONS = 20
# Plans in these states were begun, and nothing of them was given up.
UNDER_WAY = (PlanStatus.DRAFT, PlanStatus.SLICING, PlanStatus.READY)
# Of a batch's stats (seed 14.3) those that may be added up.
SUMMED_COUNTS = (
    "reqCount",
    "itemsCount",
    "inserted",
    "updated",
    "skipped",
    "outside",
    "failed",
    "retryCount",
    "429Count",
    "bytes",
    "latencyMs",
)


class OpenPartition(Protocol):
    """A window or a bucket that is not complete, as a person is told of it."""

    @property
    def name(self) -> str: ...
    @property
    def plan_id(self) -> int: ...
    @property
    def plan_key(self) -> str: ...
    @property
    def status(self) -> PlanStatus: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def is_under_way(self) -> bool: ...


@dataclass(frozen=True)
class BucketState:
    """The newest generation of an update bucket's plan."""

    bucket: int
    plan_id: int
    plan_key: str
    status: PlanStatus
    reason: str | None = None
    # something of it waits or is worked on
    is_under_way: bool = False

    @property
    def name(self) -> str:
        return f"bucket {self.bucket}"


@dataclass(frozen=True)
class WindowState:
    """The newest generation of a window's plan."""

    window: Window
    plan_id: int
    plan_key: str
    status: PlanStatus
    changed_at: datetime
    # the last error of a task that is not done; None where there was none, or nobody asked for it
    reason: str | None = None
    # something of it waits or is worked on; False where nobody asked
    is_under_way: bool = False

    @property
    def name(self) -> str:
        return f"{self.window.start:%F %H:%M}"


@dataclass(frozen=True)
class PlanReport:
    """What a plan's tasks did: counts over all of its batches, and the slices that are not done."""

    plan_id: int
    plan_key: str
    provenance_code: str
    endpoint_name: str
    operation: Operation
    # None for an update bucket, which has its number instead
    window: Window | None
    bucket: int | None
    # of how many
    buckets: int | None
    status: PlanStatus
    totals: Mapping[str, int] = field(default_factory=dict)
    pages: int = 0
    # slice number to records fetched, for a plot
    records_by_slice: Mapping[int, int] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    # nothing of what is unfinished was given up: it goes on without anybody asking for it
    is_under_way: bool = False
    # slices that became smaller ones while they were fetched, with the reasons
    cuts: tuple[str, ...] = ()
    # some of the items that were set aside, each with the reason
    set_aside: tuple[str, ...] = ()
    # of an update: how many records it asked for, and for which reasons
    due: Mapping[str, int] = field(default_factory=dict)


def window_states(
    engine: Engine, provenance_code: str, endpoint_name: str, operation: Operation
) -> dict[Window, WindowState]:
    """Every window that was ever planned, by its newest generation."""
    table = ing_plan.c
    newest = (
        select(func.max(table.id))
        .where(
            table.provenance_code == provenance_code,
            table.endpoint_name == endpoint_name,
            table.operation_code == operation,
            table.window_from.is_not(None),
        )
        .group_by(table.window_from, table.window_to)
    )
    columns = (table.id, table.plan_key, table.status_code, table.window_from, table.window_to, table.updated_at)
    # of few, because a plan's remarks may be long
    remarks = case((table.status_code == PlanStatus.CANCELLED, table.record_remarks)).label("remarks")
    query = select(*columns, remarks).where(table.id.in_(newest))
    rows = read(engine, lambda connection: connection.execute(query).all())
    found = {}
    for row in sorted(rows, key=lambda each: each.window_from):
        window = Window(row.window_from, row.window_to)
        status, cancelled = PlanStatus(row.status_code), (row.remarks or {}).get("cancelled")
        found[window] = WindowState(window, row.id, row.plan_key, status, row.updated_at, cancelled)
    return found


def was_begun(engine: Engine, provenance_code: str, endpoint_name: str, operation: Operation) -> bool:
    """Whether any window or bucket was ever planned."""
    table = ing_plan.c
    query = select(table.id).where(
        table.provenance_code == provenance_code,
        table.endpoint_name == endpoint_name,
        table.operation_code == operation,
    )
    return read(engine, lambda connection: connection.execute(query.limit(1)).first()) is not None


def open_windows(
    engine: Engine, provenance_code: str, endpoint_name: str, operation: Operation, *, begins: datetime | None = None
) -> list[WindowState]:
    """Windows that were planned and are not complete, with the reason: what the check `complete` fails for.

    Left out are windows of another size, from before the Registry was changed, that complete ones cover by now, and
    those before the endpoint's windows begin: no partition is left by which they could be completed.
    """
    states = window_states(engine, provenance_code, endpoint_name, operation).values()
    complete = [state for state in states if state.status is PlanStatus.COMPLETED]
    found = [
        state
        for state in states
        if state.status is not PlanStatus.COMPLETED
        and (begins is None or state.window.end > begins)
        and not _is_covered(state, complete)
    ]
    reasons, under_way = _reasons(engine, [state.plan_id for state in found[:MOST_REASONS]]), _under_way(engine, found)
    return [
        replace(state, reason=state.reason or reasons.get(state.plan_id), is_under_way=state.plan_id in under_way)
        for state in found
    ]


def open_buckets(engine: Engine, provenance_code: str, endpoint_name: str, buckets: int | None) -> list[BucketState]:
    """Buckets that were planned and are not complete, with the reason; none of another number of buckets."""
    table = ing_plan.c
    query = select(table.id, table.plan_key, table.status_code, table.slice_params, table.record_remarks).where(
        table.provenance_code == provenance_code,
        table.endpoint_name == endpoint_name,
        table.operation_code == Operation.UPDATE,
        table.status_code != PlanStatus.COMPLETED,
    )
    found = read(engine, lambda connection: connection.execute(query).all())
    rows = [row for row in found if buckets is None or row.slice_params["buckets"] == buckets]
    begun_anew = newer_generations(engine, [row.plan_key for row in rows])
    left = sorted((row for row in rows if row.plan_key not in begun_anew), key=lambda row: row.slice_params["bucket"])
    reasons = _reasons(engine, [row.id for row in left[:MOST_REASONS]])
    states = [
        BucketState(
            row.slice_params["bucket"],
            row.id,
            row.plan_key,
            PlanStatus(row.status_code),
            (row.record_remarks or {}).get("cancelled") or reasons.get(row.id),
        )
        for row in left
    ]
    under_way = _under_way(engine, states)
    return [replace(state, is_under_way=state.plan_id in under_way) for state in states]


def newer_generations(engine: Engine, plan_keys: Sequence[str]) -> set[str]:
    """Those of the plans whose window or bucket was begun anew since then."""
    following = {next_generation(key): key for key in plan_keys}
    found: set[str] = set()
    for some in chunks(list(following), 500):
        query = select(ing_plan.c.plan_key).where(ing_plan.c.plan_key.in_(some))
        keys = read(engine, lambda connection, query=query: connection.execute(query).scalars().all())  # type: ignore[misc]
        found.update(following[key] for key in keys)
    return found


def _is_covered(state: WindowState, complete: Sequence[WindowState]) -> bool:
    """Whether windows that were completed later, of whatever size, cover all of this one."""
    later = [each.window for each in complete if each.plan_id > state.plan_id]
    return contiguous_end(state.window.start, later) >= state.window.end


def _reasons(engine: Engine, plan_ids: Sequence[int]) -> dict[int, str]:
    if not plan_ids:
        return {}
    task = ing_task.c
    query = (
        select(task.plan_id, func.max(task.last_error_msg))
        .where(task.plan_id.in_(plan_ids), task.status_code != TaskStatus.SUCCEEDED, task.last_error_msg.is_not(None))
        .group_by(task.plan_id)
    )
    rows = read(engine, lambda connection: connection.execute(query).all())
    return {row[0]: row[1] for row in rows}


def _under_way(engine: Engine, found: Sequence[WindowState | BucketState]) -> set[int]:
    """Plans of which something waits or is worked on. PARTIAL alone does not tell: it is also the state of a plan that
    has more slices than the queue has room for."""
    task, piece = ing_task.c, ing_plan_slice.c
    ids: set[int] = {state.plan_id for state in found if state.status in UNDER_WAY}
    for some in chunks([state.plan_id for state in found if state.status is PlanStatus.PARTIAL], 500):
        is_open = task.status_code.in_([status for status in TaskStatus if not status.is_final])
        tasks = select(task.plan_id).where(task.plan_id.in_(some), is_open)
        slices = select(piece.plan_id).where(piece.plan_id.in_(some), piece.status_code == SliceStatus.PENDING)
        query = tasks.union(slices)
        ids.update(read(engine, lambda connection, query=query: connection.execute(query).scalars().all()))  # type: ignore[misc]
    return ids


def plan_report(engine: Engine, plan_id: int) -> PlanReport:
    return read(engine, lambda connection: _report(connection, plan_id))


def _report(connection: Connection, plan_id: int) -> PlanReport:
    plan = connection.execute(select(ing_plan).where(ing_plan.c.id == plan_id)).one_or_none()
    if plan is None:
        raise PlanError(f"plan {plan_id} is gone: its source was removed while it was harvested")
    batch, piece, task = ing_task_run_batch.c, ing_plan_slice.c, ing_task.c
    batches = connection.execute(
        select(batch.stats, batch.record_count, piece.slice_no)
        .join(ing_plan_slice, piece.id == batch.slice_id)
        .where(batch.plan_id == plan_id, batch.status_code == BatchStatus.SUCCEEDED)
        .order_by(batch.id)
    ).all()
    totals: dict[str, int] = {}
    records: dict[int, int] = {}
    passes: dict[int, int] = {}
    set_aside: list[str] = []
    for row in batches:
        set_aside += (row.stats or {}).get("setAside", ())
        pass_no = (row.stats or {}).get("pass", 1)
        if pass_no != passes.setdefault(row.slice_no, pass_no):
            # the slice was begun again from its start: the same records came once more
            passes[row.slice_no], records[row.slice_no] = pass_no, 0
        records[row.slice_no] = records.get(row.slice_no, 0) + row.record_count
        for name, value in _numbers(row.stats):
            totals[name] = totals.get(name, 0) + value
    unfinished = connection.execute(
        select(piece.slice_no, task.status_code, task.last_error_msg, task.scheduled_at)
        .outerjoin_from(ing_plan_slice, ing_task, task.slice_id == piece.id)
        .where(piece.plan_id == plan_id, piece.status_code != SliceStatus.SPLIT)
        .where((task.status_code != TaskStatus.SUCCEEDED) | task.status_code.is_(None))
        .order_by(piece.slice_no)
    ).all()
    return PlanReport(
        plan_id,
        plan.plan_key,
        plan.provenance_code,
        plan.endpoint_name,
        Operation(plan.operation_code),
        None if plan.window_from is None else Window(plan.window_from, plan.window_to),
        (plan.slice_params or {}).get("bucket"),
        (plan.slice_params or {}).get("buckets"),
        PlanStatus(plan.status_code),
        totals,
        pages=len(batches),
        records_by_slice=dict(sorted(records.items())),
        unfinished=tuple(_describe_slice(row) for row in unfinished),
        is_under_way=PlanStatus(plan.status_code).is_open
        and not any(row.status_code is not None and TaskStatus(row.status_code).is_final for row in unfinished),
        cuts=tuple(_describe_cut(cut) for cut in (plan.record_remarks or {}).get("cuts", ())),
        set_aside=tuple(dict.fromkeys(set_aside))[:MOST_REASONS],
        due=(plan.slice_params or {}).get("due", {}),
    )


def _numbers(stats: Mapping[str, Any] | None) -> Sequence[tuple[str, int]]:
    return [(name, stats[name]) for name in SUMMED_COUNTS if name in stats] if stats else []


def _describe_slice(row: Any) -> str:
    state = row.status_code or "not queued yet"
    if state == TaskStatus.QUEUED and row.last_error_msg:
        state = f"waits until {row.scheduled_at:%F %T} UTC"
    return f"slice {row.slice_no}: {state}" + (f" ({row.last_error_msg})" if row.last_error_msg else "")


def _describe_cut(cut: Mapping[str, Any]) -> str:
    return f"slice {cut['slice']} became {' and '.join(map(str, cut['parts']))}: {cut['reason']}"

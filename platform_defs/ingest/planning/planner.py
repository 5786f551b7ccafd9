"""Plans a window or an update bucket: its plan, slices and tasks in one transaction, once however often it is asked.

An open plan is continued: what failed or ended incomplete is queued again, with the snapshot that the plan has. A plan
that is over gives a new generation, which fetches everything again; so does one that ended incomplete, if the Registry
has changed since then, or else what was corrected there would never be used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, func, select, update

from platform_defs.ingest.codes import (
    PRIORITIES,
    Operation,
    PlanStatus,
    SliceDimension,
    SliceStatus,
    TaskStatus,
    Trigger,
)
from platform_defs.ingest.errors import PlanError
from platform_defs.ingest.ledger.completion import close_plan_if_done
from platform_defs.ingest.planning import keys
from platform_defs.ingest.planning.slices import Estimate, SliceDraft, ids_of, slice_window
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.spec.snapshot import (
    expr_proto_hash,
    expr_proto_snapshot,
    spec_as_json,
    spec_fingerprint,
    spec_from_json,
)
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task
from platform_defs.store.upsert import upsert

# Tasks in these states are tried again when their plan is continued.
_UNFINISHED = (TaskStatus.FAILED, TaskStatus.PARTIAL)


@dataclass(frozen=True)
class PlannedWork:
    """A plan as it stands after it was planned or continued."""

    plan_id: int
    plan_key: str
    generation: int
    status: PlanStatus
    # the plan stood already and goes on with its own snapshot
    continued: bool
    queued: int


def plan_window(
    engine: Engine,
    compiled: CompiledSpec,
    window: Window,
    *,
    schedule_instance_id: int,
    trigger: Trigger,
    estimate: Estimate = Estimate(),  # noqa: B008  # frozen
    now: datetime,
) -> PlannedWork:
    """The plan of a harvest or backfill window."""
    spec = compiled.spec
    prefix = keys.window_plan_prefix(spec.provenance_code, spec.endpoint_name, spec.operation, window)
    drafts = slice_window(spec, window, estimate)
    values = {"window_from": window.start, "window_to": window.end, "slice_strategy_code": drafts[0].spec["dimension"]}
    return _plan(engine, compiled, prefix, values, drafts, schedule_instance_id, trigger, now)


def plan_bucket(
    engine: Engine,
    compiled: CompiledSpec,
    bucket: int,
    drafts: Sequence[SliceDraft],
    *,
    due: Mapping[str, int] | None = None,
    schedule_instance_id: int,
    trigger: Trigger,
    now: datetime,
) -> PlannedWork:
    """The plan of an update bucket over the slices of ids that were found to be due; `due` says how many, and why.

    A plan that ended incomplete is begun anew if records are due by now that it does not have: what it has fetched is
    due no longer, and what it has not still is.
    """
    spec = compiled.spec
    prefix = keys.bucket_plan_prefix(spec.provenance_code, spec.endpoint_name, bucket, spec.update_buckets)
    values = {
        "slice_strategy_code": SliceDimension.ID,
        "slice_params": {"bucket": bucket, "buckets": spec.update_buckets, **({"due": due} if due else {})},
    }
    return _plan(engine, compiled, prefix, values, drafts, schedule_instance_id, trigger, now)


def queue_pending_slices(engine: Engine, plan_id: int, now: datetime) -> int:
    """Gives tasks to slices that had none because too many tasks were waiting; returns how many."""
    piece = ing_plan_slice.c

    def work(connection: Connection) -> int:
        plan = connection.execute(select(ing_plan).where(ing_plan.c.id == plan_id).with_for_update()).one()
        # another executor may have queued them since then, and the plan may be over: it must not open again
        pending = select(piece.id).where(piece.plan_id == plan_id, piece.status_code == SliceStatus.PENDING).limit(1)
        if plan.status_code == PlanStatus.CANCELLED or connection.execute(pending).first() is None:
            return 0
        return _queue_slices(connection, plan, now)

    return transact(engine, work)


def plan_spec(plan: Row[Any]) -> Spec:
    """The snapshot that the plan was made with."""
    return spec_from_json(plan.provenance_config_snapshot["spec"])


def insert_slices(connection: Connection, plan: Row[Any], drafts: Sequence[SliceDraft], *, first_no: int) -> list[int]:
    """Writes slices that the plan does not have yet; returns the ids of all of them, in order."""
    rows = [
        {
            "plan_id": plan.id,
            "provenance_code": plan.provenance_code,
            "slice_no": first_no + number,
            "slice_signature_hash": draft.signature,
            "slice_spec": dict(draft.spec),
            "expr_hash": draft.expr_hash,
            "expr_snapshot": dict(draft.expr_snapshot),
            "status_code": SliceStatus.PENDING,
        }
        for number, draft in enumerate(drafts)
    ]
    upsert(connection, ing_plan_slice, rows, key=["plan_id", "slice_signature_hash"], update="nothing")
    table = ing_plan_slice.c
    wanted = [draft.signature for draft in drafts]
    query = select(table.slice_signature_hash, table.id).where(
        table.plan_id == plan.id, table.slice_signature_hash.in_(wanted)
    )
    found = {row.slice_signature_hash: row.id for row in connection.execute(query)}
    return [found[signature] for signature in wanted]


def insert_tasks(connection: Connection, plan: Row[Any], slices: Sequence[Row[Any]], now: datetime) -> int:
    """One task for each slice that has none yet; returns how many were added.

    Raises PlanError where a slice is left without a task: its plan would wait for ever, and nobody would hear of it.
    """
    spec = plan_spec(plan)
    operation, params = Operation(plan.operation_code), plan.slice_params or {}
    rows, has_task = [], _with_task(connection, slices)
    for each in (one for one in slices if one.id not in has_task):
        draft = SliceDraft(each.slice_spec, each.slice_signature_hash, each.expr_snapshot, each.expr_hash)
        task_params = {"bounds": each.slice_spec["bounds"], "initial": each.slice_spec["pagination"]["initial"]}
        task_params |= {"twoPhase": each.slice_spec["phase"]["twoPhase"], "generation": params["generation"]}
        rows.append(
            {
                "schedule_instance_id": plan.schedule_instance_id,
                "plan_id": plan.id,
                "slice_id": each.id,
                "provenance_code": plan.provenance_code,
                "endpoint_name": plan.endpoint_name,
                "operation_code": operation,
                "credential_id": spec.auth.credential_id,
                "params": task_params,
                "idempotent_key": keys.task_key(
                    draft, operation, Trigger(params["trigger"]), task_params, plan.plan_key
                ),
                "expr_hash": each.expr_hash,
                "priority": PRIORITIES[operation],
                "max_concurrent": spec.max_concurrent_slices,
                "status_code": TaskStatus.QUEUED,
                "scheduled_at": now,
            }
        )
    upsert(connection, ing_task, rows, key=["idempotent_key"], update="nothing")
    ready = update(ing_plan_slice).where(ing_plan_slice.c.id.in_([each.id for each in slices]))
    connection.execute(ready.values(status_code=SliceStatus.READY))
    if left := len(slices) - len(_with_task(connection, slices)):
        raise PlanError(f"{left} of {len(slices)} slices of {plan.plan_key} got no task: other tasks have their keys")
    return len(rows)


def _with_task(connection: Connection, slices: Sequence[Row[Any]]) -> set[int]:
    """The ids of those slices that have a task."""
    query = select(ing_task.c.slice_id).where(ing_task.c.slice_id.in_([each.id for each in slices]))
    return set(connection.execute(query).scalars())


def _plan(
    engine: Engine,
    compiled: CompiledSpec,
    prefix: str,
    values: Mapping[str, Any],
    drafts: Sequence[SliceDraft],
    schedule_instance_id: int,
    trigger: Trigger,
    now: datetime,
) -> PlannedWork:
    """Continues the open plan whose key begins with the prefix, or writes the next generation of it."""

    def work(connection: Connection) -> PlannedWork:
        latest = _latest_generation(connection, prefix)
        if latest is not None and PlanStatus(latest.status_code).is_open:
            if not _is_outdated(connection, latest, compiled.spec, drafts):
                return _continue_plan(connection, latest, now)
            _cancel_plan(connection, latest.id)
        generation = 1 if latest is None else latest.slice_params["generation"] + 1
        row = _plan_row(compiled, values, prefix, generation, schedule_instance_id, trigger, drafts)
        # two planners at the same moment: the second one finds the first one's plan and continues it
        upsert(connection, ing_plan, [row], key=["plan_key"], update="nothing")
        query = select(ing_plan).where(ing_plan.c.plan_key == row["plan_key"]).with_for_update()
        plan = connection.execute(query).one()
        if not PlanStatus(plan.status_code).is_open:
            return _planned_work(connection, plan, continued=True, queued=0)
        if plan.status_code != PlanStatus.DRAFT:
            return _continue_plan(connection, plan, now)
        insert_slices(connection, plan, drafts, first_no=1)
        queued = _queue_slices(connection, plan, now)
        if not drafts:
            close_plan_if_done(connection, plan.id)  # an update bucket in which nothing is due
        return _planned_work(connection, plan, continued=False, queued=queued)

    return transact(engine, work)


def _latest_generation(connection: Connection, prefix: str) -> Row[Any] | None:
    # a range of keys, which every store looks up by the unique index
    key = ing_plan.c.plan_key
    first, behind = f"{prefix}:g", f"{prefix}:h"
    query = select(ing_plan).where(key >= first, key < behind).order_by(ing_plan.c.id.desc()).limit(1)
    return connection.execute(query.with_for_update()).one_or_none()


def _is_outdated(connection: Connection, plan: Row[Any], spec: Spec, drafts: Sequence[SliceDraft]) -> bool:
    """Whether a new generation must take the place of an open plan.

    It must if the plan ended incomplete and the Registry has changed since, or if it is an update and records are due
    that it does not have. While a task of the plan waits or is worked on, the plan goes on as it was made.
    """
    is_changed = plan.spec_fingerprint != spec_fingerprint(spec)
    if not is_changed and spec.operation is not Operation.UPDATE:
        return False
    piece, task = ing_plan_slice.c, ing_task.c
    slices = (
        select(piece.slice_spec, task.status_code)
        .outerjoin_from(ing_plan_slice, ing_task, task.slice_id == piece.id)
        .where(piece.plan_id == plan.id, piece.status_code != SliceStatus.SPLIT)
    )
    under_way = task.id.is_(None) | task.status_code.not_in([status for status in TaskStatus if status.is_final])
    if connection.execute(slices.where(under_way).limit(1)).first() is not None:
        return False
    if is_changed:
        return True
    undone = connection.execute(slices.where(task.status_code.in_(_UNFINISHED))).all()
    has = {each for row in undone for each in ids_of(row.slice_spec)}
    return any(each not in has for draft in drafts for each in ids_of(draft.spec))


def _cancel_plan(connection: Connection, plan_id: int) -> None:
    """Cancels a plan and its unfinished tasks, because another generation takes its place."""
    connection.execute(update(ing_plan).where(ing_plan.c.id == plan_id).values(status_code=PlanStatus.CANCELLED))
    undone = (ing_task.c.plan_id == plan_id) & ing_task.c.status_code.in_(_UNFINISHED)
    connection.execute(update(ing_task).where(undone).values(status_code=TaskStatus.CANCELLED))


def _continue_plan(connection: Connection, plan: Row[Any], now: datetime) -> PlannedWork:
    again = (
        update(ing_task)
        .where(ing_task.c.plan_id == plan.id, ing_task.c.status_code.in_(_UNFINISHED))
        .values(status_code=TaskStatus.QUEUED, scheduled_at=now, lease_owner=None, leased_until=None, finished_at=None)
    )
    queued = connection.execute(again).rowcount + _queue_slices(connection, plan, now)
    return _planned_work(connection, plan, continued=True, queued=queued)


def _queue_slices(connection: Connection, plan: Row[Any], now: datetime) -> int:
    """Creates tasks for slices without one, as many as the endpoint's stock_limit allows; returns how many.

    The plan becomes READY if all slices have a task, else PARTIAL.
    """
    spec = plan_spec(plan)
    table, task = ing_plan_slice.c, ing_task.c
    waiting = select(func.count()).where(
        task.provenance_code == plan.provenance_code,
        task.endpoint_name == plan.endpoint_name,
        task.operation_code == plan.operation_code,
        task.status_code == TaskStatus.QUEUED,
    )
    room = max(0, spec.stock_limit - connection.execute(waiting).scalar_one())
    # A slice that is READY without a task is of a release in which a task of another plan could have its key.
    has_task = select(task.id).where(task.slice_id == table.id).exists()
    pending = and_(table.plan_id == plan.id, table.status_code.in_([SliceStatus.PENDING, SliceStatus.READY]), ~has_task)
    slices = connection.execute(select(ing_plan_slice).where(pending).order_by(table.slice_no).limit(room)).all()
    queued = insert_tasks(connection, plan, slices, now) if slices else 0
    left = connection.execute(select(func.count()).select_from(ing_plan_slice).where(pending)).scalar_one()
    status = PlanStatus.PARTIAL if left else PlanStatus.READY
    connection.execute(update(ing_plan).where(ing_plan.c.id == plan.id).values(status_code=status))
    return queued


def _planned_work(connection: Connection, plan: Row[Any], *, continued: bool, queued: int) -> PlannedWork:
    status = connection.execute(select(ing_plan.c.status_code).where(ing_plan.c.id == plan.id)).scalar_one()
    generation = plan.slice_params["generation"]
    return PlannedWork(plan.id, plan.plan_key, generation, PlanStatus(status), continued=continued, queued=queued)


def _plan_row(
    compiled: CompiledSpec,
    values: Mapping[str, Any],
    prefix: str,
    generation: int,
    schedule_instance_id: int,
    trigger: Trigger,
    drafts: Sequence[SliceDraft],
) -> dict[str, Any]:
    spec, fingerprint = compiled.spec, spec_fingerprint(compiled.spec)
    estimated = [draft.spec["telemetry"]["totalEstimated"] for draft in drafts]
    known = [count for count in estimated if count is not None]
    return {
        "window_from": None,
        "window_to": None,
        **values,
        "schedule_instance_id": schedule_instance_id,
        "plan_key": keys.plan_key(prefix, generation),
        "provenance_code": spec.provenance_code,
        "endpoint_name": spec.endpoint_name,
        "operation_code": spec.operation,
        "expr_proto_hash": expr_proto_hash(spec),
        "expr_proto_snapshot": expr_proto_snapshot(spec),
        "provenance_config_snapshot": {"spec": spec_as_json(spec), "origins": dict(compiled.origins)},
        "provenance_config_hash": fingerprint,
        "spec_fingerprint": fingerprint,
        "slice_params": {**values.get("slice_params", {}), "generation": generation, "trigger": trigger},
        "status_code": PlanStatus.DRAFT,
        "record_remarks": {
            "totalEstimated": sum(known) if known else None,
            "sliceCount": len(drafts),
            "degradation": list(compiled.warnings),
        },
    }

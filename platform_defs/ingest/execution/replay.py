"""Replays: rebuilds the request of a batch from its plan's snapshot alone, and says whether it is the same request.

The page at which a run failed has no batch; its request is rebuilt too, and there is nothing to compare it with.

Nothing is sent and nothing is written. What the Registry says today has no part in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, select

from platform_defs.ingest.codes import Operation, RunStatus
from platform_defs.ingest.errors import IngestError
from platform_defs.ingest.execution.progress import last_run_before, resume
from platform_defs.ingest.fetching.page_fetching import detail_names, search_names
from platform_defs.ingest.fetching.pages import PagePosition, first_position
from platform_defs.ingest.planning.planner import plan_spec
from platform_defs.ingest.planning.slices import ids_of, window_of
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.spec.snapshot import instant_of
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task, ing_task_run, ing_task_run_batch


@dataclass(frozen=True)
class BatchContext:
    """A batch with everything that its request was made of."""

    # as it was stored; None for the page at which its run failed
    batch: Row[Any] | None
    # why that page failed
    error: str | None
    expr_hash: str
    spec: Spec
    spec_fingerprint: str
    slice_signature: str
    slice_spec: Mapping[str, Any]
    position: PagePosition
    asked_at: datetime

    @property
    def names(self) -> dict[str, Any]:
        """What the templates of the request referred to."""
        if self.spec.operation is Operation.UPDATE:
            size = self.spec.batching.id_batch_size
            ids = ids_of(self.slice_spec)[(self.position.number - 1) * size : self.position.number * size]
            return detail_names(self.spec, ids)
        return search_names(self.spec, self.slice_spec, window_of(self.slice_spec), self.position)


def load_batch(engine: Engine, run_id: int, batch_no: int) -> BatchContext:
    return read(engine, lambda connection: _load(connection, run_id, batch_no))


def _load(connection: Connection, run_id: int, batch_no: int) -> BatchContext:
    table = ing_task_run_batch.c
    found = select(ing_task_run_batch).where(table.run_id == run_id, table.batch_no == batch_no)
    batch = connection.execute(found).one_or_none()
    owner = select(ing_task_run, ing_task.c.slice_id, ing_task.c.plan_id, ing_task.c.expr_hash)
    run = connection.execute(
        owner.join(ing_task, ing_task.c.id == ing_task_run.c.task_id).where(ing_task_run.c.id == run_id)
    ).one_or_none()
    if run is None:
        raise IngestError(f"there is no run {run_id}")
    plan = connection.execute(select(ing_plan).where(ing_plan.c.id == run.plan_id)).one()
    piece = connection.execute(select(ing_plan_slice).where(ing_plan_slice.c.id == run.slice_id)).one()
    spec = plan_spec(plan)
    if batch is None:
        position = _failed_position(connection, run, batch_no, spec, piece.slice_spec)
    else:
        position = _position(connection, batch, piece.slice_spec)
    return BatchContext(
        batch,
        run.error if batch is None else None,
        run.expr_hash,
        spec,
        plan.spec_fingerprint,
        piece.slice_signature_hash,
        piece.slice_spec,
        position,
        run.finished_at if batch is None else _asked_at(batch),
    )


def _asked_at(batch: Row[Any]) -> datetime:
    """When the request was made, for templates with a time; older batches know only when they were committed."""
    noted: str | None = batch.request_digest.get("at")
    return batch.committed_at if noted is None else instant_of(noted)


def _position(connection: Connection, batch: Row[Any], slice_spec: Mapping[str, Any]) -> PagePosition:
    """Where the batch before this one said that the slice goes on; the slice's own beginning for the first."""
    before = _last_batch(connection, batch.task_id, ing_task_run_batch.c.id < batch.id)
    if before is None or before.stats["pass"] != batch.stats["pass"] or before.stats["nextHint"] is None:
        return first_position(slice_spec)
    return PagePosition.from_json(before.stats["nextHint"])


def _failed_position(
    connection: Connection, run: Row[Any], batch_no: int, spec: Spec, slice_spec: Mapping[str, Any]
) -> PagePosition:
    """Where the run stood when it failed: after its last batch, or where it began, as it had found that itself."""
    mine = _last_batch(connection, run.task_id, ing_task_run_batch.c.run_id == run.id)
    last = mine or _last_batch(connection, run.task_id, ing_task_run_batch.c.run_id < run.id)
    failed_at = (run.stats or {}).get("failedAt")
    has_failed = failed_at is not None or run.status_code == RunStatus.FAILED
    if not has_failed or batch_no != (0 if last is None else last.batch_no) + 1:
        raise IngestError(f"run {run.id} has no batch {batch_no}")
    if failed_at is not None:
        return PagePosition.from_json(failed_at)
    # a run of an older version, or one whose process died
    if mine is None:
        before = None if last is None else last_run_before(connection, run.task_id, run.attempt_no)
        position = resume(spec.pagination, slice_spec, last, run.started_at, last_run=before).position
    else:
        hint = mine.stats["nextHint"]
        position = None if hint is None else PagePosition.from_json(hint)
    if position is None:
        raise IngestError(f"run {run.id} failed after its last page: there is no request to rebuild")
    return position


def _last_batch(connection: Connection, task_id: int, which: ColumnElement[bool]) -> Row[Any] | None:
    table = ing_task_run_batch.c
    query = select(ing_task_run_batch).where(table.task_id == task_id, which).order_by(table.id.desc()).limit(1)
    return connection.execute(query).one_or_none()

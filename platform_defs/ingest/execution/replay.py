"""The black box: rebuilds the request of a batch from its plan's snapshot alone, and says whether it is the same one.

Nothing is sent and nothing is written. What the Registry says today has no part in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import IngestError
from platform_defs.ingest.execution.page_fetching import detail_names, search_names
from platform_defs.ingest.execution.pages import PagePosition, first_position
from platform_defs.ingest.planning.planner import plan_spec
from platform_defs.ingest.planning.slices import ids_of, window_of
from platform_defs.ingest.spec.model import Spec
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task_run_batch


@dataclass(frozen=True)
class BatchContext:
    """A stored batch with everything that its request was made of."""

    batch: Row[Any]
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
    if batch is None:
        raise IngestError(f"run {run_id} has no batch {batch_no}")
    plan = connection.execute(select(ing_plan).where(ing_plan.c.id == batch.plan_id)).one()
    piece = connection.execute(select(ing_plan_slice).where(ing_plan_slice.c.id == batch.slice_id)).one()
    return BatchContext(
        batch,
        plan_spec(plan),
        plan.spec_fingerprint,
        piece.slice_signature_hash,
        piece.slice_spec,
        _position(connection, batch, piece.slice_spec),
        batch.committed_at,
    )


def _position(connection: Connection, batch: Row[Any], slice_spec: Mapping[str, Any]) -> PagePosition:
    """Where the batch before this one said that the slice goes on; the slice's own beginning for the first."""
    table = ing_task_run_batch.c
    before = (
        select(ing_task_run_batch.c.stats)
        .where(table.task_id == batch.task_id, table.id < batch.id)
        .order_by(table.id.desc())
        .limit(1)
    )
    stats = connection.execute(before).scalar_one_or_none()
    if stats is None or stats["pass"] != batch.stats["pass"] or stats["nextHint"] is None:
        return first_position(slice_spec)
    return PagePosition.from_json(stats["nextHint"])

"""Loads what the decisions are made over: three queries for any number of models and batches."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, select

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.op_time import batch_of, dependencies_satisfied_by, satisfying_names, spellings
from platform_defs.arrivals.readiness import ArrivalKey, Standing, Versions
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.arrivals import (
    metrics_etl_log,
    metrics_model,
    metrics_model_dependency,
    metrics_model_input,
)

CHUNK = 500
log = logging.getLogger(__name__)


def standings_of_dependents(connection: Connection, table: str, op_time: str) -> list[Standing]:
    """The models that wait for this table, by its name or by one that renders to it, as they stand for the batch."""
    dependency = metrics_model_dependency.c
    waiting = select(dependency.model_id).where(
        dependency.dependency_table_name.in_(dependencies_satisfied_by(table, op_time))
    )
    found = _load_dependencies(connection, metrics_model.c.model_id.in_(waiting))
    return _build_standings(connection, found, [(model_id, op_time) for model_id in sorted(found)])


def load_standings(connection: Connection, batches: Sequence[Batch]) -> list[Standing]:
    """In the order of the batches; a model that does not exist has none."""
    found: list[Standing] = []
    for chunk in chunks(batches, CHUNK):
        wanted = sorted({model_id for model_id, _ in chunk})
        waits = _load_dependencies(connection, metrics_model.c.model_id.in_(wanted))
        found += _build_standings(connection, waits, [batch for batch in chunk if batch[0] in waits])
    return found


@dataclass(frozen=True)
class _Dependencies:
    published: bool
    tables: list[str] = field(default_factory=list)


def _build_standings(
    connection: Connection, waits: Mapping[str, _Dependencies], batches: Sequence[Batch]
) -> list[Standing]:
    names = {
        (model_id, op_time): [name for table in waits[model_id].tables for name in satisfying_names(table, op_time)]
        for model_id, op_time in batches
    }
    arrived = _load_arrivals(connection, {(name, batch[1]) for batch, found in names.items() for name in found})
    read = _load_inputs(connection, batches)
    return [
        Standing(
            model_id,
            op_time,
            published=waits[model_id].published,
            depends_on=tuple(waits[model_id].tables),
            arrived={
                written: at for name in names[model_id, op_time] for written, at in arrived[name, op_time].items()
            },
            read=read[model_id, op_time],
        )
        for model_id, op_time in batches
    ]


def _load_dependencies(connection: Connection, which: ColumnElement[bool]) -> dict[str, _Dependencies]:
    model, dependency = metrics_model.c, metrics_model_dependency.c
    query = (
        select(model.model_id, model.state, dependency.dependency_table_name)
        .outerjoin_from(metrics_model, metrics_model_dependency, dependency.model_id == model.model_id)
        .where(which)
        .order_by(dependency.id)
    )
    found: dict[str, _Dependencies] = {}
    for model_id, state, table in connection.execute(query):
        waits = found.setdefault(model_id, _Dependencies(published=state == PUBLISHED))
        if table is not None:
            waits.tables.append(table)
    return found


def _load_arrivals(connection: Connection, wanted: Iterable[Batch]) -> Mapping[Batch, Versions]:
    row = metrics_etl_log.c
    query = select(row.table_name, row.op_time, row.arrival_time).where(
        in_batches(row.table_name, row.op_time, wanted, spellings)
    )
    found: dict[Batch, dict[ArrivalKey, datetime]] = defaultdict(dict)
    for table, op_time, arrival in connection.execute(query):
        if arrival is None:
            log.warning("the arrival_time of %s for %s is no time: taken as not arrived", table, op_time)
        else:
            found[table, batch_of(op_time)][table, op_time] = arrival
    return found


def _load_inputs(connection: Connection, batches: Iterable[Batch]) -> Mapping[Batch, Versions]:
    read = metrics_model_input.c
    query = select(read.model_id, read.op_time, read.dependency_table_name, read.arrival_time).where(
        in_batches(read.model_id, read.op_time, batches, spellings)
    )
    found: dict[Batch, dict[ArrivalKey, datetime]] = defaultdict(dict)
    for model_id, op_time, table, arrival in connection.execute(query):
        found[model_id, batch_of(op_time)][table, op_time] = arrival
    return found

"""Loads standings: how models and batches stand, with three queries for up to CHUNK of them."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, select

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.arrivals.models.model import PUBLISHED, RETIRED
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
    """The standings, for this batch, of all models that depend on the table, without retired ones."""
    dependency = metrics_model_dependency.c
    dependents = select(dependency.model_id).where(
        dependency.dependency_table_name.in_(dependencies_satisfied_by(table, op_time))
    )
    wanted = and_(metrics_model.c.model_id.in_(dependents), metrics_model.c.state != RETIRED)
    models = _load_models(connection, wanted)
    return _build_standings(connection, models, [(model_id, op_time) for model_id in sorted(models)])


def load_standings(connection: Connection, batches: Sequence[Batch]) -> list[Standing]:
    """The standings in the order of the batches, without batches of models that do not exist."""
    found: list[Standing] = []
    for chunk in chunks(batches, CHUNK):
        wanted = sorted({model_id for model_id, _ in chunk})
        models = _load_models(connection, metrics_model.c.model_id.in_(wanted))
        found += _build_standings(connection, models, [batch for batch in chunk if batch[0] in models])
    return found


@dataclass(frozen=True)
class _Model:
    published: bool
    published_at: datetime | None
    source: str | None
    depends_on: list[str] = field(default_factory=list)


def _build_standings(connection: Connection, models: Mapping[str, _Model], batches: Sequence[Batch]) -> list[Standing]:
    names = {
        (model_id, op_time): [
            name for dependency in models[model_id].depends_on for name in satisfying_names(dependency, op_time)
        ]
        for model_id, op_time in batches
    }
    arrived = _load_arrivals(connection, {(name, batch[1]) for batch, found in names.items() for name in found})
    read = _load_read_versions(connection, batches)
    return [
        Standing(
            model_id,
            op_time,
            published=models[model_id].published,
            depends_on=tuple(models[model_id].depends_on),
            arrived={key: at for name in names[model_id, op_time] for key, at in arrived[name, op_time].items()},
            read=read[model_id, op_time],
            published_at=models[model_id].published_at,
            source=models[model_id].source,
        )
        for model_id, op_time in batches
    ]


def _load_models(connection: Connection, which: ColumnElement[bool]) -> dict[str, _Model]:
    model, dependency = metrics_model.c, metrics_model_dependency.c
    query = (
        select(model.model_id, model.state, model.published_at, model.source, dependency.dependency_table_name)
        .outerjoin_from(metrics_model, metrics_model_dependency, dependency.model_id == model.model_id)
        .where(which)
        .order_by(dependency.id)
    )
    models: dict[str, _Model] = {}
    for model_id, state, published_at, source, table in connection.execute(query):
        found = models.setdefault(model_id, _Model(state == PUBLISHED, published_at, source))
        if table is not None:
            found.depends_on.append(table)
    return models


def _load_arrivals(connection: Connection, batches: Iterable[Batch]) -> Mapping[Batch, Versions]:
    """The arrivals of tables, by the table's name and the batch that its opTime names."""
    row = metrics_etl_log.c
    query = select(row.table_name, row.op_time, row.arrival_time).where(
        in_batches(row.table_name, row.op_time, batches, spellings)
    )
    found: dict[Batch, dict[ArrivalKey, datetime]] = defaultdict(dict)
    for table, op_time, arrival in connection.execute(query):
        if arrival is None:
            log.warning("the arrival_time of %s for %s is no time: taken as not arrived", table, op_time)
        else:
            found[table, batch_of(op_time)][table, op_time] = arrival
    return found


def _load_read_versions(connection: Connection, batches: Iterable[Batch]) -> Mapping[Batch, Versions]:
    """The arrivals that the last closed execution of each batch read."""
    row = metrics_model_input.c
    query = select(row.model_id, row.op_time, row.dependency_table_name, row.arrival_time).where(
        in_batches(row.model_id, row.op_time, batches, spellings)
    )
    found: dict[Batch, dict[ArrivalKey, datetime]] = defaultdict(dict)
    for model_id, op_time, table, arrival in connection.execute(query):
        found[model_id, batch_of(op_time)][table, op_time] = arrival
    return found

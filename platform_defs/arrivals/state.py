"""Loads what the decisions are made over: three queries for any number of models and batches."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, select, tuple_

from platform_defs.arrivals.decisions import Standing
from platform_defs.arrivals.models import PUBLISHED
from platform_defs.arrivals.optime import dependencies_met_by, names_of
from platform_defs.store.arrivals import (
    metrics_etl_log,
    metrics_model,
    metrics_model_dependency,
    metrics_model_input,
)

Batch = tuple[str, str]  # model id, opTime
CHUNK = 500


def dependents(connection: Connection, table: str, op_time: str) -> list[str]:
    """The models that wait for this table, by its name or by one that renders to it."""
    query = (
        select(metrics_model_dependency.c.model_id)
        .join(metrics_model, metrics_model.c.model_id == metrics_model_dependency.c.model_id)
        .where(metrics_model_dependency.c.dependency_table_name.in_(dependencies_met_by(table, op_time)))
        .distinct()
        .order_by(metrics_model_dependency.c.model_id)
    )
    return list(connection.execute(query).scalars())


def standings(connection: Connection, batches: Sequence[Batch]) -> list[Standing]:
    """In the order of the batches; a model that does not exist has none."""
    found: list[Standing] = []
    for start in range(0, len(batches), CHUNK):
        found += _standings(connection, batches[start : start + CHUNK])
    return found


def _standings(connection: Connection, batches: Sequence[Batch]) -> list[Standing]:
    waits, published = _dependencies(connection, {model_id for model_id, _ in batches})
    known = [batch for batch in batches if batch[0] in published]
    wanted = {
        (name, op_time)
        for model_id, op_time in known
        for dependency in waits[model_id]
        for name in names_of(dependency, op_time)
    }
    arrived = _arrivals(connection, wanted)
    read = _inputs(connection, known)
    return [
        Standing(
            model_id,
            op_time,
            published=published[model_id],
            depends_on=tuple(waits[model_id]),
            arrived={
                name: arrived[name, op_time]
                for dependency in waits[model_id]
                for name in names_of(dependency, op_time)
                if (name, op_time) in arrived
            },
            read=read[model_id, op_time],
        )
        for model_id, op_time in known
    ]


def _dependencies(connection: Connection, model_ids: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, bool]]:
    model, dependency = metrics_model.c, metrics_model_dependency.c
    query = (
        select(model.model_id, model.state, dependency.dependency_table_name)
        .outerjoin_from(metrics_model, metrics_model_dependency, dependency.model_id == model.model_id)
        .where(model.model_id.in_(sorted(model_ids)))
        .order_by(dependency.id)
    )
    waits: dict[str, list[str]] = defaultdict(list)
    published = {}
    for model_id, state, table in connection.execute(query):
        published[model_id] = state == PUBLISHED
        if table is not None:
            waits[model_id].append(table)
    return waits, published


def _arrivals(connection: Connection, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], datetime]:
    log = metrics_etl_log.c
    query = select(log.table_name, log.op_time, log.arrival_time).where(
        tuple_(log.table_name, log.op_time).in_(sorted(wanted))
    )
    return {(table, op_time): arrival for table, op_time, arrival in connection.execute(query)}


def _inputs(connection: Connection, batches: Iterable[Batch]) -> dict[Batch, dict[str, datetime]]:
    read = metrics_model_input.c
    query = select(read.model_id, read.op_time, read.dependency_table_name, read.arrival_time).where(
        tuple_(read.model_id, read.op_time).in_(sorted(batches))
    )
    found: dict[Batch, dict[str, datetime]] = defaultdict(dict)
    for model_id, op_time, table, arrival in connection.execute(query):
        found[model_id, op_time][table] = arrival
    return found

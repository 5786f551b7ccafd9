"""Arrivals beside the dependencies that they meet: by their literal name, and by one that the batch rendered.

An ETL job may have spelled the batch with dashes: what compares batches in SQL must know both spellings.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, String, and_, case, func, literal, select, union_all

from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.op_time import DASHED
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model, metrics_model_dependency


def arrivals_per_dependency(since: datetime, *only: ColumnElement[bool]) -> CompoundSelect[Any]:
    """Of published models: model_id, dependency, id, table_name, op_time and arrival_time of the row."""
    log, dependency, model = metrics_etl_log, metrics_model_dependency, metrics_model
    columns = (
        dependency.c.model_id,
        dependency.c.dependency_table_name.label("dependency"),
        *(log.c.id, log.c.table_name, log.c.op_time, log.c.arrival_time),
    )
    published = and_(model.c.model_id == dependency.c.model_id, model.c.state == PUBLISHED)
    name, lately = dependency.c.dependency_table_name, log.c.arrival_time >= since
    literally = (
        select(*columns)
        .select_from(log)
        .join(dependency, name == log.c.table_name)
        .join(model, published)
        .where(lately, *only)
    )
    # placeholders are few: from them to the arrivals, because the other way round nothing could be looked up
    batches = select(log.c.op_time).where(lately).distinct().subquery("batches")
    rendered = rendered_name_sql(name, batch_sql(batches.c.op_time))
    by_batch = (
        select(*columns)
        .select_from(dependency)
        .join(batches, name.like("%yyyy%"))
        .join(log, and_(log.c.table_name == rendered, log.c.op_time == batches.c.op_time))
        .join(model, published)
        .where(lately, rendered != name, *only)
    )
    return union_all(literally, by_batch)


def batch_sql(op_time: ColumnElement[str]) -> ColumnElement[str]:
    """optime.batch_of, in SQL; the pattern that is cheap to look at comes first."""
    dashed = and_(op_time.like("____-__%"), op_time.regexp_match(f"^{DASHED}$"))
    return case((dashed, func.replace(op_time, "-", "")), else_=op_time)


def dashed_sql(op_time: ColumnElement[str]) -> ColumnElement[str]:
    """The dashed one of optime.spellings, in SQL; of a batch that has none, some other text."""
    name: ColumnElement[str] = func.substr(op_time, 1, 4, type_=String)
    cases = []
    for length in range(6, 16, 2):
        name = name + "-" + func.substr(op_time, length - 1, 2, type_=String)
        cases.append((func.length(op_time) == length, name))
    return case(*cases, else_=op_time)


def rendered_name_sql(name: ColumnElement[str], op_time: ColumnElement[str]) -> ColumnElement[str]:
    """optime.rendered, in SQL: a word that needs more digits than the batch has is hidden from the shorter words."""
    hidden = {"yyyymmdd": "\x01", "yyyymm": "\x02", "yyyy": "\x03"}
    for word, mark in hidden.items():
        digits = case(
            (func.length(op_time) >= len(word), func.substr(op_time, 1, len(word))), else_=literal(mark, String)
        )
        name = func.replace(name, word, digits)
    for word, mark in hidden.items():
        name = func.replace(name, mark, word)
    return name

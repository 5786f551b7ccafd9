"""SQL that joins arrivals to the dependencies they satisfy, by exact name or with the date placeholder filled in.

An ETL job may write the opTime of a batch with dashes, so SQL that compares batches must know both spellings. The
functions ending in `_sql` are the SQL forms of functions in op_time.py.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, String, and_, case, func, literal, select, union_all

from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.op_time import DASHED
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model, metrics_model_dependency


def arrivals_per_dependency(since: datetime, *only: ColumnElement[bool]) -> CompoundSelect[Any]:
    """Arrivals since an instant, one row for each dependency of a published model that the arrival satisfies.

    The columns are model_id, dependency, and the arrival's id, table_name, op_time and arrival_time.
    """
    log, dependency, model = metrics_etl_log, metrics_model_dependency, metrics_model
    columns = (
        dependency.c.model_id,
        dependency.c.dependency_table_name.label("dependency"),
        *(log.c.id, log.c.table_name, log.c.op_time, log.c.arrival_time),
    )
    published = and_(model.c.model_id == dependency.c.model_id, model.c.state == PUBLISHED)
    name, lately = dependency.c.dependency_table_name, log.c.arrival_time >= since
    by_name = (
        select(*columns)
        .select_from(log)
        .join(dependency, name == log.c.table_name)
        .join(model, published)
        .where(lately, *only)
    )
    # The join starts from the few dependencies with a placeholder: rendered names are found in the arrivals' index, but
    # no index leads from an arrival's name back to a placeholder.
    batches = select(log.c.op_time).where(lately).distinct().subquery("batches")
    rendered = rendered_name_sql(name, batch_sql(batches.c.op_time))
    by_rendered_name = (
        select(*columns)
        .select_from(dependency)
        .join(batches, name.like("%yyyy%"))
        .join(log, and_(log.c.table_name == rendered, log.c.op_time == batches.c.op_time))
        .join(model, published)
        .where(lately, rendered != name, *only)
    )
    return union_all(by_name, by_rendered_name)


def batch_sql(op_time: ColumnElement[str]) -> ColumnElement[str]:
    """op_time.batch_of in SQL. LIKE comes first, because it is cheaper than the regular expression."""
    dashed = and_(op_time.like("____-__%"), op_time.regexp_match(f"^{DASHED}$"))
    return case((dashed, func.replace(op_time, "-", "")), else_=op_time)


def dashed_sql(op_time: ColumnElement[str]) -> ColumnElement[str]:
    """The dashed spelling of a batch, as in op_time.spellings; a batch without one gives some other text."""
    name: ColumnElement[str] = func.substr(op_time, 1, 4, type_=String)
    cases = []
    for length in range(6, 16, 2):
        name = name + "-" + func.substr(op_time, length - 1, 2, type_=String)
        cases.append((func.length(op_time) == length, name))
    return case(*cases, else_=op_time)


def rendered_name_sql(name: ColumnElement[str], op_time: ColumnElement[str]) -> ColumnElement[str]:
    """op_time.render_table_name in SQL.

    A placeholder longer than the opTime is replaced by a control character for a while: otherwise the shorter
    placeholder at its beginning would be filled in.
    """
    stand_ins = {"yyyymmdd": "\x01", "yyyymm": "\x02", "yyyy": "\x03"}
    for word, stand_in in stand_ins.items():
        digits = case(
            (func.length(op_time) >= len(word), func.substr(op_time, 1, len(word))), else_=literal(stand_in, String)
        )
        name = func.replace(name, word, digits)
    for word, stand_in in stand_ins.items():
        name = func.replace(name, stand_in, word)
    return name

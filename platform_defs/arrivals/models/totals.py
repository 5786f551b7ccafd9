"""Totals of KPIs over the rows of a batch: only of those whose values add up."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

import sqlglot
from sqlalchemy import Connection, Numeric, cast, func, select
from sqlglot import exp
from sqlglot.errors import SqlglotError

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.arrivals.models.model import Model
from platform_defs.store.tables.arrivals import metrics_kpi_value


def meaningful_totals(model: Model, sums: Mapping[str, Decimal], rows: int) -> dict[str, Decimal]:
    """Those of the sums that say something: all if the batch has one row, else those of plain sums and counts."""
    return {
        kpi.kpi_id: sums[kpi.kpi_id]
        for kpi in model.kpis
        if kpi.kpi_id in sums and (rows == 1 or is_additive(kpi.expression))
    }


@lru_cache(maxsize=4096)
def is_additive(expression: str) -> bool:
    """Whether the expression is a plain SUM or COUNT. Averages, distinct counts and ratios do not add up."""
    try:
        found = sqlglot.parse_one(expression, read="mysql")
    except (SqlglotError, RecursionError):
        return False
    return isinstance(found, exp.Sum | exp.Count) and found.find(exp.Distinct) is None


def stored_sums(connection: Connection, batches: Sequence[Batch]) -> dict[Batch, dict[str, Decimal]]:
    """The sum of the stored values of each KPI and batch. On SQLite it is as exact as a float."""
    value = metrics_kpi_value.c
    query = (
        select(value.model_id, value.op_time, value.kpi_id, func.sum(cast(value.kpi_value, Numeric(38, 10))))
        .where(in_batches(value.model_id, value.op_time, batches))
        .group_by(value.model_id, value.op_time, value.kpi_id)
    )
    found: dict[Batch, dict[str, Decimal]] = {batch: {} for batch in batches}
    for model_id, op_time, kpi_id, total in connection.execute(query):
        found[model_id, op_time][kpi_id] = Decimal(str(total))
    return found

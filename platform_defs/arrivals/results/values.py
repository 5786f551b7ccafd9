"""Values of a model's KPIs as clients read them: the stored ones, and computed KPIs evaluated over them.

The size of a page counts *cells*: combinations of a batch and dimensions. A computed KPI is evaluated for a cell from
the KPIs of the same batch and the same dimensions, whichever models they belong to.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, DecimalException
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, false, or_, select

from platform_defs.arrivals.errors import InvalidQuery, UnknownModel
from platform_defs.arrivals.models.kpi_arithmetic import evaluate
from platform_defs.arrivals.models.kpi_expressions import InvalidExpression, parse_stored_expression
from platform_defs.arrivals.notify.impact import affected_kpis
from platform_defs.store.exact_numbers import decimal_text, exact_number
from platform_defs.store.tables.arrivals import metrics_kpi, metrics_kpi_value, metrics_model

MAX_CELLS = 1000
# opTime and hash of the dimensions
Cell = tuple[str, str]
_CURSOR = re.compile(r"(?P<hash>[0-9a-f]{64}):(?P<op_time>.+)", re.DOTALL)


@dataclass(frozen=True)
class KpiValue:
    kpi_id: str
    op_time: str
    dims: Mapping[str, Any]
    # None for a computed KPI that has no value here
    value: Decimal | None
    # the version of the model that stored the value; None for computed KPIs
    model_version: int | None = None
    # why a computed KPI has no value, if that is not because a KPI is missing or a divisor is zero
    reason: str | None = None


@dataclass(frozen=True)
class ValuePage:
    values: list[KpiValue]
    # continues after this page; None if it is the last
    next_cursor: str | None


@dataclass(frozen=True)
class _ComputedKpi:
    expression: str
    depends_on: tuple[str, ...]


@dataclass
class _CellValues:
    dims: Mapping[str, Any] = field(default_factory=dict)
    own: list[KpiValue] = field(default_factory=list)
    # the stored values of all models that a computed KPI may need
    numbers: dict[str, Decimal] = field(default_factory=dict)


def read_values(
    connection: Connection,
    model_id: str,
    *,
    op_time: str | None = None,
    kpi_id: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> ValuePage:
    """A page of the values of a model's KPIs and of the computed KPIs that build on them, in order of opTime."""
    own, computed = _load_kpis(connection, model_id)
    shown = affected_kpis(own, {name: kpi.depends_on for name, kpi in computed.items()})
    if kpi_id is not None and kpi_id not in shown:
        raise InvalidQuery("kpiId", f"expected a KPI of {model_id} or one that builds on them: {', '.join(shown)}")
    cells = _load_cells(connection, model_id, op_time, cursor, limit + 1)
    evaluated = sorted(name for name in shown if name in computed and kpi_id in (None, name))
    found = _load_cell_values(connection, model_id, cells[:limit], _all_needed(evaluated, computed))
    values: list[KpiValue] = []
    for cell in cells[:limit]:
        in_cell = found[cell]
        values += [value for value in in_cell.own if kpi_id in (None, value.kpi_id)]
        values += [_evaluate(name, cell[0], in_cell, computed) for name in evaluated]
    more = len(cells) > limit
    return ValuePage(values, f"{cells[limit - 1][1]}:{cells[limit - 1][0]}" if more else None)


def json_value(value: KpiValue) -> dict[str, Any]:
    """The number is text: programs that read JSON turn its numbers into floats."""
    fields: dict[str, Any] = {
        "kpiId": value.kpi_id,
        "opTime": value.op_time,
        "dims": dict(value.dims),
        "value": None if value.value is None else decimal_text(value.value),
    }
    if value.model_version is not None:
        fields["modelVersion"] = value.model_version
    return fields | ({} if value.reason is None else {"reason": value.reason})


def _load_kpis(connection: Connection, model_id: str) -> tuple[list[str], dict[str, _ComputedKpi]]:
    """The model's own KPIs, and all computed KPIs."""
    if connection.scalar(select(metrics_model.c.id).where(metrics_model.c.model_id == model_id)) is None:
        raise UnknownModel(f"no model has the id {model_id!r}")
    kpi = metrics_kpi.c
    own = connection.scalars(select(kpi.kpi_id).where(kpi.model_id == model_id).order_by(kpi.kpi_id))
    query = select(kpi.kpi_id, kpi.expression, kpi.depends_on).where(kpi.kpi_type == "COMPUTED")
    return list(own), {
        name: _ComputedKpi(expression, tuple(depends_on or ()))
        for name, expression, depends_on in connection.execute(query)
    }


def _load_cells(
    connection: Connection, model_id: str, op_time: str | None, cursor: str | None, limit: int
) -> list[Cell]:
    row = metrics_kpi_value.c
    query = select(row.op_time, row.dims_hash).where(row.model_id == model_id).distinct()
    if op_time is not None:
        query = query.where(row.op_time == op_time)
    if cursor is not None:
        after = _CURSOR.fullmatch(cursor)
        if after is None:
            raise InvalidQuery("cursor", "expected the `next` of an earlier page")
        later_cell = and_(row.op_time == after["op_time"], row.dims_hash > after["hash"])
        query = query.where(row.op_time >= after["op_time"], or_(row.op_time > after["op_time"], later_cell))
    ordered = query.order_by(row.op_time, row.dims_hash).limit(limit)
    return [(found, dims_hash) for found, dims_hash in connection.execute(ordered)]


def _all_needed(names: Iterable[str], computed: Mapping[str, _ComputedKpi]) -> set[str]:
    """The stored KPIs that these computed KPIs build on, directly or not."""
    needed: set[str] = set()
    visited: set[str] = set()
    unvisited = list(names)
    while unvisited:
        name = unvisited.pop()
        if name in visited:
            continue
        visited.add(name)
        if name in computed:
            unvisited += computed[name].depends_on
        else:
            needed.add(name)
    return needed


def _load_cell_values(
    connection: Connection, model_id: str, cells: Sequence[Cell], needed: Collection[str]
) -> Mapping[Cell, _CellValues]:
    found: dict[Cell, _CellValues] = defaultdict(_CellValues)
    row = metrics_kpi_value.c
    # two queries, because each uses an index of its own
    for which in (row.model_id == model_id, row.kpi_id.in_(sorted(needed))):
        query = select(metrics_kpi_value).where(which, _in_cells(cells)).order_by(row.kpi_id)
        for value in connection.execute(query):
            cell = found[value.op_time, value.dims_hash]
            cell.dims = value.dims
            if value.model_id == model_id and value.kpi_id not in cell.numbers:
                cell.own.append(KpiValue(value.kpi_id, value.op_time, value.dims, value.kpi_value, value.model_version))
            cell.numbers[value.kpi_id] = value.kpi_value
    return found


def _in_cells(cells: Sequence[Cell]) -> ColumnElement[bool]:
    row = metrics_kpi_value.c
    hashes: dict[str, list[str]] = defaultdict(list)
    for op_time, dims_hash in cells:
        hashes[op_time].append(dims_hash)
    return or_(false(), *(and_(row.op_time == op_time, row.dims_hash.in_(found)) for op_time, found in hashes.items()))


def _evaluate(name: str, op_time: str, cell: _CellValues, computed: Mapping[str, _ComputedKpi]) -> KpiValue:
    try:
        number, reason = _number_of(name, cell.numbers, computed, {}), None
    except (InvalidExpression, DecimalException, ValueError) as error:
        number, reason = None, str(error) or type(error).__name__
    return KpiValue(name, op_time, cell.dims, number, reason=reason)


def _number_of(
    name: str, numbers: Mapping[str, Decimal], computed: Mapping[str, _ComputedKpi], done: dict[str, Decimal | None]
) -> Decimal | None:
    """The number of a KPI; computed ones are evaluated in order of dependency, each once."""
    if name not in computed:
        return numbers.get(name)
    if name not in done:
        done[name] = None  # loading refuses circles; in one that was stored otherwise, a KPI is null to itself
        kpi = computed[name]
        parsed = parse_stored_expression(kpi.expression, kpi.depends_on)
        values = {safe: _number_of(each, numbers, computed, done) for each, safe in parsed.safe_names.items()}
        number = evaluate(parsed.tree, values)
        done[name] = None if number is None else exact_number(number)
    return done[name]

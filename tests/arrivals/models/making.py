"""Models for the tests of this folder, and short ways to compute them and read their values."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from sqlalchemy import Engine, text

from platform_defs.arrivals.models.compute import Counts, compute
from platform_defs.arrivals.models.model import Kpi, Model
from platform_defs.sources.named import Sources
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_kpi_value
from tests.waiting import PATIENCE_S

BATCH = "20251219"
SQL = "SELECT ${dimGroup}, ${kpis} FROM orders WHERE op_time = ${op_time} GROUP BY ${dimGroup}"
AMOUNT = Kpi("KD1001", "Order amount", "SUM(amount)")
ORDERS = Kpi("KD1002", "Orders", "COUNT(*)")


def model(
    sql: str = SQL,
    *,
    dimensions: Sequence[str] = ("region",),
    kpis: Sequence[Kpi] = (AMOUNT, ORDERS),
    depends_on: Sequence[str] = ("orders",),
    source: str = "platform",
    model_id: str = "MODEL-01",
) -> Model:
    return Model(model_id, "Daily orders", tuple(depends_on), source, tuple(dimensions), sql, tuple(kpis))


def compute_model(
    engine: Engine,
    what: Model,
    op_time: str = BATCH,
    *,
    urls: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
) -> Counts:
    sources = Sources(engine, urls or {})
    return compute(engine, what, op_time, sources=sources, timeout_s=timeout_s)


def stored_values(engine: Engine, op_time: str = BATCH) -> list[tuple[str, dict[str, object], Decimal]]:
    table = metrics_kpi_value
    query = table.select().where(table.c.op_time == op_time).order_by(table.c.kpi_id, table.c.dims_hash)
    rows = read(engine, lambda connection: connection.execute(query).all())
    found = [(row.kpi_id, row.dims, row.kpi_value) for row in rows]
    return sorted(found, key=lambda row: (row[0], str(row[1])))


def run_statements(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))

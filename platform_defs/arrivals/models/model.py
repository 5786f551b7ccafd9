"""What a model is: the query of a batch, the tables it waits for and the KPIs it yields."""

from dataclasses import dataclass

PUBLISHED = "1"
UNPUBLISHED = "0"


@dataclass(frozen=True)
class Kpi:
    """An extended KPI: an aggregate expression over its model's rows."""

    kpi_id: str
    name: str
    expression: str


@dataclass(frozen=True)
class ComputedKpi:
    """An expression over other KPIs; it is never stored, but its subscribers hear of what it builds on."""

    kpi_id: str
    name: str
    expression: str
    depends_on: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    model_id: str
    name: str
    depends_on: tuple[str, ...]
    source: str
    dimensions: tuple[str, ...]
    sql: str
    kpis: tuple[Kpi, ...]
    due: str | None = None
    published: bool = False

"""What a model is: a query that computes KPIs for a batch, and the tables that the query needs."""

from dataclasses import dataclass

PUBLISHED = "1"
UNPUBLISHED = "0"
# Arrivals no longer name the model; its values stay.
RETIRED = "2"


@dataclass(frozen=True)
class Kpi:
    """An extended KPI: an aggregate expression over the rows of its model, stored per batch and dimensions."""

    kpi_id: str
    name: str
    expression: str


@dataclass(frozen=True)
class ComputedKpi:
    """A KPI computed from other KPIs. Its values are not stored; its subscribers are told when one of those changes."""

    kpi_id: str
    name: str
    expression: str
    depends_on: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    model_id: str
    name: str
    # names of tables, perhaps with a date placeholder such as yyyymmdd
    depends_on: tuple[str, ...]
    # the named data source that the query reads
    source: str
    dimensions: tuple[str, ...]
    sql: str
    kpis: tuple[Kpi, ...]
    # how often an execution is tried again while its source is down, and how long its query may take; None: as usual
    retries: int | None = None
    timeout_s: float | None = None
    # by when the tables arrive, as models/due.py reads it
    due: str | None = None
    published: bool = False
    retired: bool = False
    # the batches that the model's page in the UI has, one of partitions.PERIODS; None means every opTime
    period: str | None = None
    # grows with every change of SQL, KPIs, dimensions or source
    version: int = 1

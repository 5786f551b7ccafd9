"""Which arrivals Dagster has not heard of: the database remembers the version of each that was reported last."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, or_, select, update

from platform_defs.arrivals.met import met
from platform_defs.store.arrivals import metrics_etl_log


@dataclass(frozen=True)
class Reported:
    """An arrival as it is reported: on every dependency that it meets."""

    id: int
    table: str
    op_time: str
    arrival_time: datetime
    dependencies: tuple[str, ...]


def unreported(connection: Connection, since: datetime, limit: int) -> list[Reported]:
    """Arrivals for published models, the oldest first, in a version that nobody reported."""
    log = metrics_etl_log.c
    untold = or_(log.reported_time.is_(None), log.reported_time != log.arrival_time)
    found = met(since, untold).subquery("found")
    oldest = select(found.c.id).distinct().order_by(found.c.id).limit(limit).subquery("oldest")
    query = (
        select(found.c.id, found.c.table_name, found.c.op_time, found.c.arrival_time, found.c.dependency)
        .join(oldest, oldest.c.id == found.c.id)
        .distinct()
        .order_by(found.c.id, found.c.dependency)
    )
    arrivals: dict[int, Reported] = {}
    for id_, table, op_time, arrival_time, dependency in connection.execute(query):
        before = arrivals[id_].dependencies if id_ in arrivals else ()
        arrivals[id_] = Reported(id_, table, op_time, arrival_time, (*before, dependency))
    return list(arrivals.values())


def mark(connection: Connection, reported: Sequence[Reported]) -> None:
    """Notes what was reported; an arrival that came again meanwhile stays unreported."""
    versions = {arrival.id: arrival.arrival_time for arrival in reported}
    log = metrics_etl_log.c
    present = connection.execute(select(log.id, log.arrival_time).where(log.id.in_(versions)).with_for_update())
    same = [id_ for id_, arrival_time in present if arrival_time == versions[id_]]
    if same:
        # copied, not written: on SQLite the query above compares texts, as ETL jobs spell them
        connection.execute(update(metrics_etl_log).where(log.id.in_(same)).values(reported_time=log.arrival_time))

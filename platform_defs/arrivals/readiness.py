"""Whether a model must run for a batch: pure functions over a standing, which standings.py loads.

A standing says how one model and one batch stand: the tables that the model depends on, the arrivals of the batch, and
the arrivals that the batch's last closed execution read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from platform_defs.arrivals.op_time import satisfying_names

# The name under which a table arrived, and the opTime as the arrival's row spells it.
ArrivalKey = tuple[str, str]
# The version of an arrival is its stored arrival_time. An ETL job may write two rows for one batch, with and without
# dashes in the opTime: each has its own version.
Versions = Mapping[ArrivalKey, datetime]


class Verdict(StrEnum):
    UNPUBLISHED = "UNPUBLISHED"  # arrivals do not trigger the model
    WAITING = "WAITING"  # a table has not arrived
    CURRENT = "CURRENT"  # the last execution has read all arrivals in their present versions
    DUE = "DUE"  # the model must run


@dataclass(frozen=True)
class Standing:
    """How one model and one batch stand."""

    model_id: str
    op_time: str
    published: bool
    depends_on: tuple[str, ...]
    arrived: Versions
    # what the last closed execution read
    read: Versions
    published_at: datetime | None = None
    # the data source that the model's query reads; None is the platform's own database
    source: str | None = None


def missing_tables(standing: Standing) -> list[str]:
    """The dependencies that no arrival of the batch satisfies."""
    arrived = {name for name, _ in standing.arrived}
    return [
        dependency
        for dependency in standing.depends_on
        if not any(name in arrived for name in satisfying_names(dependency, standing.op_time))
    ]


def judge(standing: Standing) -> Verdict:
    """The model is due if the versions differ from those that were read, not only if they are later.

    ETL jobs write times by clocks and zones of their own, so a new arrival may well have an earlier time.
    """
    if not standing.published:
        return Verdict.UNPUBLISHED
    if missing_tables(standing):
        return Verdict.WAITING
    return Verdict.CURRENT if standing.arrived == standing.read else Verdict.DUE


def next_version(now: datetime, *, taken: bool) -> datetime:
    """The version of a new arrival; one microsecond off if the stored arrival has the time `now` already."""
    return now.replace(microsecond=(now.microsecond + 1) % 1_000_000) if taken else now

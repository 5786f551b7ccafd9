"""Whether a model runs for a batch: pure functions over what was loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from platform_defs.arrivals.optime import names_of

# The version of an arrival is its stored arrival_time, by the name under which the table arrived.
Versions = Mapping[str, datetime]
# A process that is killed again and again by the same batch must not go on for ever.
MAX_ATTEMPTS = 3


class Verdict(StrEnum):
    UNPUBLISHED = "UNPUBLISHED"
    WAITING = "WAITING"
    CURRENT = "CURRENT"
    DUE = "DUE"


@dataclass(frozen=True)
class Standing:
    """One model and one batch: what it waits for, what has arrived, and what its last ended execution read."""

    model_id: str
    op_time: str
    published: bool
    depends_on: tuple[str, ...]
    arrived: Versions
    read: Versions


def missing(standing: Standing) -> list[str]:
    """The dependencies that no arrival of the batch meets."""
    return [
        dependency
        for dependency in standing.depends_on
        if not any(name in standing.arrived for name in names_of(dependency, standing.op_time))
    ]


def verdict(standing: Standing) -> Verdict:
    """Differing, not newer: clocks and zones of ETL jobs are their own, and an arrival during a run counts too."""
    if not standing.published:
        return Verdict.UNPUBLISHED
    if missing(standing):
        return Verdict.WAITING
    return Verdict.CURRENT if standing.arrived == standing.read else Verdict.DUE


def arrived_as(standing: Standing) -> dict[str, str]:
    """Under which name each dependency is to be read; one that has not arrived is absent."""
    found = {}
    for dependency in standing.depends_on:
        name = next((name for name in names_of(dependency, standing.op_time) if name in standing.arrived), None)
        if name is not None:
            found[dependency] = name
    return found


def next_arrival(now: datetime, stored: datetime | None) -> datetime:
    """A version that differs from the stored one, also for two arrivals within one tick of the clock."""
    return now if stored != now else now.replace(microsecond=(now.microsecond + 1) % 1_000_000)


def starts_again(*, canceled_by_operator: bool, attempt: int) -> bool:
    """Whether an execution whose process died is made once more."""
    return not canceled_by_operator and attempt < MAX_ATTEMPTS

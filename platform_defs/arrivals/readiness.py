"""Whether a model runs for a batch: pure functions over what was loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from platform_defs.arrivals.op_time import satisfying_names

# The name under which a table arrived, and the batch as its row spells it.
ArrivalKey = tuple[str, str]
# The version of an arrival is its stored arrival_time; two rows for one batch are two versions, each by its own clock.
Versions = Mapping[ArrivalKey, datetime]
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


def missing_tables(standing: Standing) -> list[str]:
    """The dependencies that no arrival of the batch meets."""
    arrived = {name for name, _ in standing.arrived}
    return [
        dependency
        for dependency in standing.depends_on
        if not any(name in arrived for name in satisfying_names(dependency, standing.op_time))
    ]


def judge(standing: Standing) -> Verdict:
    """Differing, not newer: clocks and zones of ETL jobs are their own, and an arrival during a run counts too."""
    if not standing.published:
        return Verdict.UNPUBLISHED
    if missing_tables(standing):
        return Verdict.WAITING
    return Verdict.CURRENT if standing.arrived == standing.read else Verdict.DUE


def next_version(now: datetime, *, taken: bool) -> datetime:
    """A version that differs from the stored one, also for two arrivals within one tick of the clock."""
    return now.replace(microsecond=(now.microsecond + 1) % 1_000_000) if taken else now


def may_run_again(*, canceled_by_operator: bool, attempt: int) -> bool:
    """Whether an execution whose process died is made once more, as this attempt."""
    return not canceled_by_operator and attempt <= MAX_ATTEMPTS

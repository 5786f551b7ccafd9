"""How models and batches are called in Dagster: the asset of a model, and the partition of a batch.

Partitions of one name belong together. `op_time` lists every batch; a model with a `period` has those of that period
alone, such as `op_time_day`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

MODEL_PREFIX = "models"
TABLE_PREFIX = "tables"
ALL_BATCHES = "op_time"
# How the opTimes of a period are written.
_FORMATS = {
    "year": "%Y",
    "month": "%Y%m",
    "day": "%Y%m%d",
    "hour": "%Y%m%d%H",
    "minute": "%Y%m%d%H%M",
    "second": "%Y%m%d%H%M%S",
}
PERIODS = tuple(_FORMATS)
_DIGITS = {"year": 4, "month": 6, "day": 8, "hour": 10, "minute": 12, "second": 14}
_PARTITION = re.compile(r"[A-Za-z0-9_:.-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class PlannedModel:
    """The asset and the partition that the execution of a batch will materialise."""

    model_id: str
    # None if the batch cannot be a partition of this model
    partition: str | None
    # the name of the partitions that the model has
    partitions_name: str


def partitions_name(period: str | None) -> str:
    return ALL_BATCHES if period is None else f"{ALL_BATCHES}_{period}"


def partition_of(op_time: str, period: str | None = None) -> str | None:
    """The partition of a batch.

    None for a text that cannot be one, because ETL jobs may write any text as opTime, and for a batch of another period
    than the model's.
    """
    if not _PARTITION.fullmatch(op_time) or "..." in op_time:
        return None
    return op_time if period is None or _is_of_period(op_time, period) else None


def planned_model(model_id: str, op_time: str, period: str | None) -> PlannedModel:
    return PlannedModel(model_id, partition_of(op_time, period), partitions_name(period))


def partitions_by_name(op_times: Iterable[str]) -> Mapping[str, list[str]]:
    """Under which names these batches are partitions: each in the list of all batches and in that of its period."""
    found: dict[str, list[str]] = {}
    for op_time in sorted(set(op_times)):
        if partition_of(op_time) is not None:
            found.setdefault(ALL_BATCHES, []).append(op_time)
            for period in PERIODS:
                if _is_of_period(op_time, period):
                    found.setdefault(partitions_name(period), []).append(op_time)
    return found


def _is_of_period(op_time: str, period: str) -> bool:
    if len(op_time) != _DIGITS[period] or not (op_time.isascii() and op_time.isdigit()):
        return False
    try:
        datetime.strptime(op_time, _FORMATS[period]).replace(tzinfo=UTC)
    except ValueError:
        return False
    return True

"""The partitions of an endpoint: its windows of time, or its update buckets."""

from datetime import timedelta

from dagster import StaticPartitionsDefinition, TimeWindowPartitionsDefinition

from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.model import Spec

_DAY, _WEEK, _HOUR = timedelta(days=1), timedelta(weeks=1), timedelta(hours=1)


def window_partitions(spec: Spec) -> TimeWindowPartitionsDefinition | None:
    """The windows as Dagster's time partitions; None where no cron expression describes their size."""
    grid = WindowGrid.of(spec.window)
    cron = _cron(grid)
    if cron is None:
        return None
    form = "%Y-%m-%d" if grid.has_day_keys else "%Y-%m-%dT%H:%M"
    return TimeWindowPartitionsDefinition(start=grid.start, fmt=form, cron_schedule=cron, timezone="UTC")


def bucket_partitions(spec: Spec) -> StaticPartitionsDefinition:
    width = len(str(spec.update_buckets - 1))
    return StaticPartitionsDefinition([f"{number:0{width}d}" for number in range(spec.update_buckets)])


def _cron(grid: WindowGrid) -> str | None:
    at = f"{grid.start.minute} {grid.start.hour}"
    if grid.size == _WEEK:
        return f"{at} * * {(grid.start.weekday() + 1) % 7}"
    if grid.size == _DAY:
        return f"{at} * * *"
    if grid.size < _DAY and _DAY % grid.size == timedelta(0) and grid.size % _HOUR == timedelta(0):
        step = grid.size // _HOUR
        hours = sorted({(grid.start.hour + number * step) % 24 for number in range(24 // step)})
        return f"{grid.start.minute} {','.join(map(str, hours))} * * *"
    return None

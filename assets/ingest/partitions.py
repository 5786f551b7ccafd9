"""The partitions of an endpoint: its windows of time, or its update buckets."""

from datetime import timedelta

from dagster import StaticPartitionsDefinition, TimeWindowPartitionsDefinition

from platform_defs.ingest.planning.windows import Window, WindowGrid
from platform_defs.ingest.spec.model import Spec

_DAY, _WEEK, _HOUR = timedelta(days=1), timedelta(weeks=1), timedelta(hours=1)


def window_partitions(spec: Spec) -> TimeWindowPartitionsDefinition:
    """The windows as Dagster's time partitions; no other sizes compile than those that it has partitions for."""
    grid = WindowGrid.of(spec.window)
    form = "%Y-%m-%d" if grid.has_day_keys else "%Y-%m-%dT%H:%M"
    return TimeWindowPartitionsDefinition(start=grid.start, fmt=form, cron_schedule=_cron(grid), timezone="UTC")


def bucket_partitions(spec: Spec) -> StaticPartitionsDefinition:
    return StaticPartitionsDefinition([partition_key(spec, number) for number in range(spec.update_buckets)])


def partition_key(spec: Spec, partition: Window | int) -> str:
    """The key of a window or of a bucket."""
    if isinstance(partition, Window):
        return WindowGrid.of(spec.window).key_of(partition)
    return f"{partition:0{len(str(spec.update_buckets - 1))}d}"


def _cron(grid: WindowGrid) -> str:
    at = f"{grid.start.minute} {grid.start.hour}"
    if grid.size == _WEEK:
        return f"{at} * * {(grid.start.weekday() + 1) % 7}"
    if grid.size == _DAY:
        return f"{at} * * *"
    step = grid.size // _HOUR
    hours = sorted({(grid.start.hour + number * step) % 24 for number in range(24 // step)})
    return f"{grid.start.minute} {','.join(map(str, hours))} * * *"

"""The base of both storages: Dagster's storage, put together from those of runs, events and schedules."""

from typing import Any

from dagster._core.storage.base_storage import DagsterStorage
from dagster._core.storage.event_log import EventLogStorage
from dagster._core.storage.runs import RunStorage
from dagster._core.storage.schedules import ScheduleStorage
from dagster._serdes import ConfigurableClass, ConfigurableClassData

# Per process: a run needs few connections, the webserver at times many.
POOL_SIZE = 4
OVERFLOW = 12


class StorageOfParts(DagsterStorage[Any], ConfigurableClass):
    def __init__(
        self,
        runs: RunStorage[Any],
        events: EventLogStorage[Any],
        schedules: ScheduleStorage[Any],
        inst_data: ConfigurableClassData | None,
    ) -> None:
        self._runs, self._events, self._schedules = runs, events, schedules
        self._inst_data = inst_data
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @property
    def run_storage(self) -> RunStorage[Any]:
        return self._runs

    @property
    def event_log_storage(self) -> EventLogStorage[Any]:
        return self._events

    @property
    def schedule_storage(self) -> ScheduleStorage[Any]:
        return self._schedules

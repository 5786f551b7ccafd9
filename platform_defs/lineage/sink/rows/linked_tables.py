"""The logical tables of stored events, for readers of many events: what names mean is read once for each tenant."""

from sqlalchemy import Engine

from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.sink.rows.symlinks import Meanings, linked_names, read_all
from platform_defs.lineage.version import Version, version_of


class LinkedTables:
    """For one reading of events: it does not notice symlinks that are stored later."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._meanings: dict[int, Meanings] = {}

    def of(self, tenant_id: int, event: Event, version: str | None) -> LogicalTables:
        """version: that of the row, None if an older release stored it."""
        if tenant_id not in self._meanings:
            self._meanings[tenant_id] = read_all(self._engine, tenant_id)
        at = Version(version) if version else version_of(event.event_time, event.payload_hash)
        tables = LogicalTables(event, {})
        linked = linked_names(self._meanings[tenant_id], tables.plain, at)
        return LogicalTables(event, linked) if linked else tables

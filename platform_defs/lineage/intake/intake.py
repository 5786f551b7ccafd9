"""From parsed JSON to an item of the sink: reads the event, finds its tenant, extracts its facts."""

from dataclasses import dataclass

from platform_defs.access.errors import TenantError
from platform_defs.access.principal import Principal
from platform_defs.lineage.errors import TenantContradicted
from platform_defs.lineage.events import Event, fingerprint, parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.intake.known_tenants import StoredTenants
from platform_defs.lineage.intake.tenant_rules import resolve
from platform_defs.lineage.sink.apply import Stamped
from platform_defs.lineage.sink.commit import Item
from platform_defs.lineage.sink.raw_events import Key, row_of
from platform_defs.lineage.sink.run_counts import Run
from platform_defs.lineage.version import version_of


@dataclass(frozen=True, slots=True)
class Taken:
    event: Event
    item: Item
    unknown_operation: bool


class Intake:
    def __init__(self, tenants: StoredTenants) -> None:
        self._tenants = tenants

    def take(self, principal: Principal, raw: object) -> Taken:
        """The item, or EventRefused that names the field."""
        event = parse_event(raw)
        resolved = resolve(principal, event, self._tenants)
        tenant = resolved.tenant
        extraction = facts_of(event, resolved.source_type)
        if resolved.record:
            try:
                self._tenants.record(tenant)
            except TenantError as error:  # another process was faster, and disagrees
                reason = str(error).removeprefix(f"{error.field}: ")
                raise TenantContradicted(error.field, reason) from None
        mark = fingerprint(tenant.id, event)
        run = None
        if extraction.sql is not None and event.run_id is not None:
            run = Run(tenant.id, extraction.sql.id, event.run_id)
        item = Item(
            tenant=tenant,
            key=Key(tenant.id, mark),
            row=row_of(tenant, event, mark, resolved.source_type),
            stamped=Stamped(version_of(event.event_time, mark), extraction.facts),
            run=run,
            size=event.size,
        )
        return Taken(event, item, extraction.unknown_operation)

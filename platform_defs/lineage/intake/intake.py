"""Prepares one event for the sink: parses it, decides its tenant, extracts its facts, builds its row."""

from dataclasses import dataclass, replace

from platform_defs.access.errors import TenantError
from platform_defs.access.principal import Principal
from platform_defs.lineage.errors import TenantContradicted
from platform_defs.lineage.events import Event, fingerprint, parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import weight_of
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.intake.tenant_rules import resolve_tenant
from platform_defs.lineage.sink.apply import EventFacts
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.rows.raw_events import EventKey, event_row, names_of
from platform_defs.lineage.sink.rows.run_counts import SqlRun
from platform_defs.lineage.version import is_ahead, version_at_arrival
from platform_defs.store.metadata import now


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """unknown_operation: the event is of a Gravitino operation that the platform does not know. It changes no graph."""

    event: Event
    prepared: PreparedEvent
    unknown_operation: bool


class Intake:
    """Turns the parsed JSON of a request into events that the sink can write."""

    def __init__(self, tenants: KnownTenants) -> None:
        self._tenants = tenants

    def prepare(self, principal: Principal, raw: object) -> IntakeResult:
        """The event ready for the sink. Raises EventRefused, which names the field that is wrong."""
        event = parse_event(raw)
        resolved = resolve_tenant(principal, event, self._tenants)
        tenant = resolved.tenant
        extraction = facts_of(event, resolved.source_type)
        if resolved.record:
            try:
                self._tenants.record(tenant)
            except TenantError as error:  # another process has recorded a contradicting tenant first
                reason = str(error).removeprefix(f"{error.field}: ")
                raise TenantContradicted(error.field, reason) from None
        key = EventKey(tenant.id, fingerprint(tenant.id, event))
        arrival = now()
        version = version_at_arrival(event.event_time, arrival, event.payload_hash)
        named = replace(tenant, name=resolved.said_name or tenant.name)
        run = None
        if extraction.sql is not None and event.run_id is not None:
            run = SqlRun(tenant.id, extraction.sql.id, event.run_id)
        prepared = PreparedEvent(
            tenant=tenant,
            key=key,
            row=event_row(named, event, key.fingerprint, resolved.source_type, version),
            said_name=resolved.said_name,
            event_facts=EventFacts(version, extraction.facts),
            run=run,
            size=event.size,
            names=names_of(event, resolved.source_type, extraction),
            facts=sum(map(weight_of, extraction.facts)),
            ahead=is_ahead(event.event_time, arrival),
        )
        return IntakeResult(event, prepared, extraction.unknown_operation)

"""Settings of the lineage sink: groups, queues, retention, and what the Dagster UI shows."""

from pydantic import Field, field_validator

from platform_defs.settings.base import MAX_DAYS, MEBIBYTE, Topic


class LineageSettings(Topic):
    """How events are taken, how long they are kept, and which of them Dagster is told of."""

    lineage_group_events: int = Field(500, ge=1, le=10_000, description="Lineage events that are committed together")
    lineage_group_facts: int = Field(10_000, ge=1, description="Nodes and edges that these events together speak of")
    lineage_group_bytes: int = Field(
        8 * MEBIBYTE, ge=1024, description="Bytes of a group of lineage events; a larger single event is 413"
    )
    lineage_linger_ms: float = Field(
        2.0, ge=0, le=1000, description="Milliseconds a first event waits for others before its group is committed"
    )
    lineage_deadline_s: float = Field(
        4.0, gt=0, le=60, description="Seconds within which a lineage request is answered"
    )
    lineage_queue_events: int = Field(5000, ge=1, description="Lineage events that may wait; beyond it 503")
    lineage_queue_bytes: int = Field(16 * MEBIBYTE, ge=1024, description="Bytes of lineage events that may wait")
    lineage_tenant_rate: float = Field(
        5000.0, ge=0, description="Lineage events per second and tenant; beyond it 503 rate_limited; 0 means no limit"
    )
    lineage_tenant_burst: float = Field(
        10_000.0, ge=1, description="Lineage events that a tenant may send at once after a pause"
    )
    lineage_retention_days: int = Field(
        90, ge=0, le=MAX_DAYS, description="Days that raw lineage events are kept; 0 means for ever"
    )
    lineage_tombstone_days: int = Field(
        7,
        ge=0,
        le=MAX_DAYS,
        description=(
            "Days that the graph remembers dropped and renamed assets, for events that come late, and the last types of"
            " columns that are gone"
        ),
    )
    lineage_dead_letter_days: int = Field(
        30, ge=0, le=MAX_DAYS, description="Days that refused events are kept; 0 means for ever"
    )
    lineage_observe: bool = Field(True, description="Whether lineage events become observations in the Dagster UI")
    lineage_observe_off: str = Field("", description="Ids of tenants whose events do not become observations: 7,12")
    lineage_tables: int = Field(
        2000, ge=0, le=10_000, description="How many tables of lineage, those with the newest events, are assets"
    )

    @field_validator("lineage_observe_off")
    @classmethod
    def _check_tenant_ids(cls, value: str) -> str:
        if not all(part.strip().isdecimal() for part in value.split(",") if part.strip()):
            raise ValueError("expected ids of tenants, separated by commas")
        return value

    @property
    def unobserved_tenants(self) -> frozenset[int]:
        return frozenset(int(part) for part in self.lineage_observe_off.split(",") if part.strip())

"""Settings of arrivals, ingest and chains, of the data sources that they read, and of the logs."""

import os
import re
from typing import Literal

from pydantic import Field

from platform_defs.errors import SettingsError
from platform_defs.settings.base import MAX_DAYS, Topic


class SystemSettings(Topic):
    """Retention, time limits and sources of the systems, and the form of the logs."""

    source_queries: int = Field(
        4, ge=1, le=256, description="Executions of models that may query the same source at a time"
    )
    arrivals_namespace: str = Field(
        "", description="Lineage namespace of arrivals' tables, which are one asset then: mysql://dw:3306/sales"
    )
    arrivals_lookback_days: int = Field(
        7,
        ge=1,
        le=3650,
        description="Days back that the sensor looks for arrivals without reaction and for late tables",
    )
    arrivals_retention_days: int = Field(
        90,
        ge=0,
        le=MAX_DAYS,
        description="Days that ended tasks, finished deliveries and finished work are kept; 0 means for ever",
    )
    ingest_retention_days: int = Field(
        90,
        ge=0,
        le=MAX_DAYS,
        description="Days that batches of ended ingest plans and events of cursors are kept; 0 means for ever",
    )
    ingest_most_429: float = Field(
        0.05, gt=0, le=1, description="Share of requests answered 429 above which fewer slices of an endpoint run"
    )
    ingest_most_errors: float = Field(
        0.02, gt=0, le=1, description="Share of requests that fail above which fewer slices of an endpoint run"
    )
    ingest_slow_page_s: float = Field(
        3.0, gt=0, le=3600, description="Seconds of a page on average above which fewer slices of an endpoint run"
    )
    ingest_slow_database_s: float = Field(
        0.2, gt=0, le=3600, description="Seconds that pages wait for the database above which fewer slices run"
    )
    chain_retention_days: int = Field(
        90, ge=0, le=MAX_DAYS, description="Days that ended runs of chains and their audit are kept; 0 means for ever"
    )
    model_timeout_s: float = Field(600.0, gt=0, le=86_400, description="Seconds that the query of a model may take")
    chain_env: str = Field(
        "CHAIN_*",
        description="Variables (patterns) that nodes of chains may refer to as env:NAME; those of the platform never",
    )
    chain_lineage: bool = Field(True, description="Whether runs and nodes of chains become lineage events")
    chain_lineage_tenant: int = Field(
        0, ge=0, description="Id of the tenant whose events those are; 0 means the only tenant on record"
    )
    chain_shell: bool = Field(False, description="Whether chains may have nodes of the type shell")
    log_format: Literal["", "json", "human"] = Field(
        "", description="Form of the API's log lines; empty means human on a terminal and json elsewhere"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Level of the logs")

    @property
    def chain_env_patterns(self) -> tuple[str, ...]:
        return tuple(pattern.strip() for pattern in self.chain_env.split(",") if pattern.strip())

    def queries_of(self, source: str) -> int:
        """How many executions may query the source at a time: PLATFORM_SOURCE_<NAME>_QUERIES, or the common limit."""
        variable = f"PLATFORM_SOURCE_{source.upper()}_QUERIES"
        written = os.environ.get(variable, str(self.source_queries))
        if not re.fullmatch("[1-9][0-9]{0,3}", written, re.ASCII):
            raise SettingsError(f"{variable}: expected a whole number from 1 to 9999, got {written!r}")
        return int(written)

    @property
    def sources(self) -> dict[str, str]:
        """Named data sources: PLATFORM_SOURCE_<NAME>_URL."""
        found = {}
        for name, value in os.environ.items():
            if match := re.fullmatch(r"PLATFORM_SOURCE_(\w+)_URL", name):
                found[match[1]] = value
        return found

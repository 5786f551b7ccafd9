"""Typed settings from the environment: every PLATFORM_* variable, its default and its meaning."""

import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from platform_defs.errors import SettingsError

MEBIBYTE = 1024 * 1024
# A hundred years. The time of now minus a longer period is outside the range of dates.
MAX_DAYS = 36_500
# set by `platform up` for the processes that it starts
SUPERVISED = "PLATFORM_SUPERVISED"


class Settings(BaseSettings):
    """The settings of an operator. `Settings.load()` reports a mistake in one line that names the variable."""

    model_config = SettingsConfigDict(env_prefix="PLATFORM_", frozen=True, extra="ignore")

    home: Path = Field(Path(".platform"), description="Embedded database, Dagster home, keys")
    db_url: str = Field("", description="Database URL; empty means SQLite in the home")
    graph_url: str = Field("embedded", description="'embedded', bolt://… or neo4j://…")
    graph_user: str = Field("", description="Neo4j user; empty means no authentication")
    graph_password: SecretStr = Field(SecretStr(""), description="Neo4j password, or file:PATH")
    dagster_config: Path | None = Field(
        None, description="YAML file whose keys replace ours in dagster.yaml, such as run_launcher or retention"
    )
    dagster_retention_days: int = Field(
        90,
        ge=0,
        le=MAX_DAYS,
        description="Days that Dagster's finished runs, events and ticks are kept; 0 means for ever",
    )
    dagster_db_url: str = Field("", description="Dagster's own database; empty means derived from db_url")
    gateway_keys: str = Field("", description="Gateway public keys: kid=file:PATH,… (current and previous)")
    gateway_issuer: str = Field("", description="Expected iss of gateway assertions")
    gateway_audience: str = Field("", description="Expected aud of gateway assertions")
    auth: Literal["keys", "open"] = Field("keys", description="'open' is only allowed on a loopback bind")
    body_limit: int = Field(16 * MEBIBYTE, gt=0, description="Bytes of a request body after decompression")
    zone: str = Field("UTC", description="Time zone of the deployment, for webhook timestamps and due times")
    http_allow: str = Field(
        "", description="Private networks (CIDRs) that users' URLs may reach in any system: 10.1.0.0/16,fd00::/8"
    )
    webhook_allow: str = Field("", description="Further private networks (CIDRs), for webhook callbacks alone")
    webhook_key: SecretStr = Field(
        SecretStr(""),
        description="Key that webhook secrets are encrypted with, or env:NAME, file:PATH; empty means a file in the"
        " home. Processes on several machines need the same one",
    )
    webhook_env: str = Field(
        "",
        description="Variables (patterns) that subscriptions made over HTTP with a key without tenant may refer to; a"
        " tenant's key may refer to WEBHOOK_<CODE>__*, the command to any",
    )
    api_host: str = Field("127.0.0.1", description="Address the API binds to")
    api_port: int = Field(8000, ge=1, le=65535, description="Port of the API")
    ui_host: str = Field("127.0.0.1", description="Address the Dagster UI binds to")
    ui_port: int = Field(3000, ge=1, le=65535, description="Port of the Dagster UI")
    runner_slots: int = Field(
        8, ge=1, le=256, description="Runs that the runner executes at a time; others wait in order"
    )
    ingest_slots: int = Field(
        0, ge=0, le=256, description="Slots of the runner that runs of ingest may hold; 0 means half of them"
    )
    runner_reserved: int = Field(
        -1,
        ge=-1,
        le=256,
        description="Slots of the runner that only executions which arrivals made due may take; -1 means a quarter",
    )
    source_queries: int = Field(
        4, ge=1, le=256, description="Executions of models that may query the same source at a time"
    )
    stuck_after_s: float = Field(
        120.0, ge=1, le=86_400, description="Seconds after which something that does not move on is shown as stuck"
    )
    runner_grace_s: float = Field(3.0, ge=0, le=60, description="Seconds a run has to end after SIGTERM before SIGKILL")
    runner_orphans: Literal["finish", "end"] = Field(
        "finish",
        description="Whether runs that survived the crash of their runner finish or are ended by the next runner",
    )
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
        description="Days that the graph remembers dropped and renamed assets, for events that come late",
    )
    lineage_dead_letter_days: int = Field(
        30, ge=0, le=MAX_DAYS, description="Days that refused events are kept; 0 means for ever"
    )
    lineage_observe: bool = Field(True, description="Whether lineage events become observations in the Dagster UI")
    lineage_observe_off: str = Field("", description="Ids of tenants whose events do not become observations: 7,12")
    lineage_tables: int = Field(
        2000, ge=0, le=10_000, description="How many tables of lineage, those with the newest events, are assets"
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

    @classmethod
    def load(cls) -> "Settings":
        try:
            return cls()
        except ValidationError as error:
            problems = "; ".join(
                f"PLATFORM_{str(p['loc'][0]).upper()}: {p['msg'].removeprefix('Value error, ')}"
                for p in error.errors(include_url=False, include_input=False, include_context=False)
            )
            raise SettingsError(problems) from None

    @field_validator("home")
    @classmethod
    def _make_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"no such time zone: {value!r}; expected a name such as Europe/Berlin") from None
        return value

    @field_validator("db_url", "dagster_db_url")
    @classmethod
    def _normalize_url(cls, value: str) -> str:
        return normalize_database_url(value) if value else value

    @field_validator("graph_url")
    @classmethod
    def _check_graph_url(cls, value: str) -> str:
        if value != "embedded" and not _is_graph_url(value):
            raise ValueError("expected 'embedded', bolt://host:port or neo4j://host:port")
        return value

    @field_validator("http_allow", "webhook_allow")
    @classmethod
    def _check_networks(cls, value: str) -> str:
        try:
            _parse_networks(value)
        except ValueError as error:
            raise ValueError(f"expected networks such as 10.1.0.0/16, separated by commas: {error}") from None
        return value

    @field_validator("lineage_observe_off")
    @classmethod
    def _check_tenant_ids(cls, value: str) -> str:
        if not all(part.strip().isdecimal() for part in value.split(",") if part.strip()):
            raise ValueError("expected ids of tenants, separated by commas")
        return value

    @property
    def http_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Private networks that users' URLs may reach in any system."""
        return _parse_networks(self.http_allow)

    @property
    def webhook_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Private networks that webhook callbacks may reach: those of any system, and further ones."""
        return (*self.http_networks, *_parse_networks(self.webhook_allow))

    @property
    def chain_env_patterns(self) -> tuple[str, ...]:
        return tuple(pattern.strip() for pattern in self.chain_env.split(",") if pattern.strip())

    @property
    def slots_of_ingest(self) -> int:
        """At least one, and never all where there are two or more: other systems must find a slot."""
        most = max(1, self.runner_slots - 1)
        return min(most, self.ingest_slots or max(1, self.runner_slots // 2))

    @property
    def reserved_slots(self) -> int:
        """Never all of them: other work must find a slot, also if there is only one."""
        wanted = self.runner_slots // 4 if self.runner_reserved < 0 else self.runner_reserved
        return min(wanted, self.runner_slots - 1)

    @property
    def unobserved_tenants(self) -> frozenset[int]:
        return frozenset(int(part) for part in self.lineage_observe_off.split(",") if part.strip())

    @property
    def database_url(self) -> URL:
        if self.db_url:
            return make_url(self.db_url)
        return URL.create("sqlite", database=str(self.home / "platform.db"))

    @property
    def dagster_database_url(self) -> URL | None:
        """The database of Dagster's instance; None means that Dagster keeps it in files under the home."""
        if self.dagster_db_url:
            return make_url(self.dagster_db_url)
        url = self.database_url
        return None if url.get_backend_name() == "sqlite" else url.set(database=f"{url.database}_dagster")

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"

    @property
    def graph_secret(self) -> str:
        return resolve_secret(self.graph_password.get_secret_value())

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


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """The PLATFORM_* names that no setting has, each with the nearest that there is, if one is near."""
    known = [name.upper() for name in Settings.model_fields]
    own = re.compile(rf"PLATFORM_(SOURCE_\w+_(URL|QUERIES)|TEST_\w+|{'|'.join(known)})|{SUPERVISED}")
    found: dict[str, str | None] = {}
    for name in sorted(name for name in names if name.startswith("PLATFORM_") and not own.fullmatch(name)):
        # without the prefix, which alone makes any two of them similar
        near = get_close_matches(name.removeprefix("PLATFORM_"), known, n=1)
        found[name] = f"PLATFORM_{near[0]}" if near else None
    return found


def normalize_source_url(value: str) -> str:
    """The URL of a data source, which may also be PostgreSQL."""
    if value.startswith("postgres://"):
        value = value.replace("postgres", "postgresql", 1)
    return normalize_database_url(value, ("mysql", "mariadb", "postgresql", "sqlite"))


def normalize_database_url(value: str, kinds: Sequence[str] = ("mysql", "mariadb", "sqlite")) -> str:
    """The database URL with our driver. The ValueError of a bad one never repeats it: it may contain a password."""
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        raise ValueError("expected mysql+mysqlconnector://user:password@host/database or sqlite:///FILE") from None
    if url.drivername in ("mysql", "mariadb"):
        url = url.set(drivername=f"{url.drivername}+mysqlconnector")
    if url.get_backend_name() not in kinds:
        expected = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise ValueError(f"{url.get_backend_name()} is not supported; expected {expected}")
    if not url.database:
        raise ValueError("the URL names no database")
    return url.render_as_string(hide_password=False)


def _is_graph_url(value: str) -> bool:
    if not re.match(r"^(bolt|neo4j)(\+s|\+ssc)?://", value):
        return False
    try:
        parts = urlsplit(value)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


def resolve_secret(reference: str) -> str:
    """The secret that `env:NAME` or `file:PATH` refers to; any other value is the secret itself."""
    kind, _, rest = reference.partition(":")
    if kind == "env":
        if rest not in os.environ:
            raise SettingsError(f"secret env:{rest} is not set")
        return os.environ[rest]
    if kind == "file":
        try:
            return Path(rest).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingsError(f"secret file:{rest} cannot be read: {error.strerror}") from None
    return reference

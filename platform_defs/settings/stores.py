"""Settings of the stores: the home, the database, the graph, and Dagster's own database."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from sqlalchemy.engine import URL, make_url

from platform_defs.settings.base import MAX_DAYS, Topic
from platform_defs.settings.secrets import resolve_secret
from platform_defs.settings.urls import normalize_database_url


class StoreSettings(Topic):
    """Where the platform and Dagster keep what they know."""

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

    @field_validator("home", mode="before")
    @classmethod
    def _unless_empty(cls, value: object) -> object:
        """An empty variable is one that is not set: it does not mean the working directory."""
        return cls.model_fields["home"].default if value == "" else value

    @field_validator("home")
    @classmethod
    def _make_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

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


def _is_graph_url(value: str) -> bool:
    if not re.match(r"^(bolt|neo4j)(\+s|\+ssc)?://", value):
        return False
    try:
        parts = urlsplit(value)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False

"""Brings the stores that the settings name to what this code needs: database, its schema, the graph's constraints."""

from dataclasses import dataclass

from sqlalchemy import Engine

from platform_defs.graph.open import open_graph
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.create_database import ensure_database
from platform_defs.store.engine import open_engine


@dataclass(frozen=True)
class Upgraded:
    created: bool
    applied: list[str]
    revision: str | None


def upgrade(settings: Settings) -> Upgraded:
    """Idempotent, and safe from two processes at once."""
    created = ensure_database(settings.database_url)
    engine = open_engine(settings.database_url, pool_size=2)
    try:
        applied = migrate.upgrade(engine)
        _upgrade_graph(settings, engine)
        return Upgraded(created, applied, migrate.current_revision(engine))
    finally:
        engine.dispose()


def _upgrade_graph(settings: Settings, engine: Engine) -> None:
    graph = open_graph(settings, engine)
    try:
        graph.ensure_schema()
    finally:
        graph.close()

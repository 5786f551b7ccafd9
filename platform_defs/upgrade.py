"""Brings the database and the graph that the settings name to the schema of this code, and creates what is missing."""

from contextlib import closing
from dataclasses import dataclass

from platform_defs.connections import open_database
from platform_defs.graph.open import open_graph
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.create_database import ensure_database


@dataclass(frozen=True)
class UpgradeReport:
    """Whether the database was created, which migrations were applied, and the revision after them."""

    created: bool
    applied: list[str]
    revision: str | None


def upgrade_stores(settings: Settings) -> UpgradeReport:
    """May be repeated, and may run in two processes at once: the second one waits and finds nothing to do."""
    with (
        open_database(settings, pool_size=2, any_schema=True, create=True) as engine,
        closing(open_graph(settings, engine)) as graph,
    ):
        if settings.graph_url != "embedded":
            # Fails at once and before anything is migrated; the schema alone would be tried again for seconds.
            graph.ping()
        # after the graph has answered: a start that fails leaves no database that nobody was told of
        created = ensure_database(settings.database_url)
        applied = migrate.upgrade(engine)
        graph.ensure_schema()
        return UpgradeReport(created, applied, migrate.current_revision(engine))

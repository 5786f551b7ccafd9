"""The demo source in the Registry: the presets of PubMed and Crossref under codes of their own, at another address."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, func, select, update

from platform_defs.ingest.registry.file import read_file
from platform_defs.ingest.registry.loading import VERSION_COUNTER, load
from platform_defs.ingest.registry.presets import read_preset
from platform_defs.ingest.registry.sections import CONFIGURATIONS
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.registry import reg_provenance
from platform_defs.work.definition_versions import bump

DEMO_SOURCES = {"demo_pubmed": "pubmed", "demo_crossref": "crossref"}
# How long before the first load the windows of the demo sources begin.
FIRST_WINDOWS = timedelta(days=7)
# The demo source lists a record at once: its last day is due at midnight, and what pages show works at every hour.
NO_LAG = timedelta(0)


def load_demo_sources(engine: Engine, url: str, *, now: datetime) -> None:
    """Loads both presets at this address; loading them again changes the address alone, and never their windows."""
    for code, preset in DEMO_SOURCES.items():
        file = read_file(read_preset(preset), f"preset:{preset}")
        start = _first_window(engine, code, now)
        load(engine, file.with_changes(code=code, base_url=url, start=start, safety_lag=NO_LAG), now=now)


def rest_demo_sources(engine: Engine) -> None:
    """Where nobody answers at their address nothing is to be harvested from them, until they are loaded again."""
    is_busy = (reg_provenance.c.provenance_code.in_(DEMO_SOURCES), reg_provenance.c.is_active)

    def work(connection: Connection) -> None:
        if connection.execute(update(reg_provenance).where(*is_busy).values(is_active=False)).rowcount:
            bump(connection, VERSION_COUNTER)

    transact(engine, work)


def _first_window(engine: Engine, code: str, now: datetime) -> datetime:
    table = CONFIGURATIONS["window"].table
    query = select(func.min(table.c.start_at)).where(table.c.provenance_code == code)
    stored: datetime | None = read(engine, lambda connection: connection.execute(query).scalar_one())
    return stored or (now - FIRST_WINDOWS).replace(hour=0, minute=0, second=0, microsecond=0)

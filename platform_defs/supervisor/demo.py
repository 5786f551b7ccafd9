"""What a newcomer finds: the demo tenant with its key, and a source of records to harvest from."""

import os
from datetime import UTC, date, datetime
from pathlib import Path

from sqlalchemy import Engine

from platform_defs.access.keys import issue_key, verify_key
from platform_defs.access.principal import SCOPES, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant, find_contradicting
from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.errors import AccessError, PlatformError
from platform_defs.supervisor.ports import find_free_port, require_free_port
from platform_defs.supervisor.processes import LOOPBACK, DemoSourceSpec

KEY_FILE = "demo.key"
PORT_FILE = "demo-source.port"


def why_tenant_is_taken(engine: Engine) -> str | None:
    """What is on record where the demo's tenant would be; None if the demo may have its tenant."""
    taken = find_contradicting(engine, DEMO_TENANT)
    if taken is None:
        return None
    known = f"tenant {taken.id} is on record as {taken.code!r} ({taken.name})"
    return f"{known}, and the demo needs tenant {DEMO_TENANT.id} as {DEMO_TENANT.code!r} ({DEMO_TENANT.name})"


def ensure_demo_key(engine: Engine, home: Path) -> str:
    """The key in the home's demo.key; a new one if the file is missing or the database does not accept its key."""
    add_tenant(engine, DEMO_TENANT)
    path, known = home / KEY_FILE, kept_demo_key(home)
    if known is not None and _has_all_scopes(engine, known):
        return known
    key = issue_key(engine, "demo", SCOPES, source_type=SourceType.COMPUTE, tenant_id=DEMO_TENANT.id)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(key + "\n")
    return key


def kept_demo_key(home: Path) -> str | None:
    """The key in the home's demo.key, which a removal of the demo deletes."""
    try:
        return (home / KEY_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def prepare_demo_source(engine: Engine, home: Path, *, short_day: date | None) -> DemoSourceSpec:
    """Loads the demo sources into the Registry; returns what their server is started with.

    The port is kept in the home: windows that were planned before a restart name it in their snapshots.
    """
    path, host = home / PORT_FILE, LOOPBACK
    try:
        port = int(path.read_text(encoding="ascii"))
        require_free_port(host, port, "demo source", "--no-demo")
    except (OSError, ValueError, PlatformError):
        port = find_free_port(host)
        path.write_text(f"{port}\n", encoding="ascii")
    load_demo_sources(engine, f"http://{host}:{port}", now=datetime.now(UTC))
    return DemoSourceSpec(port, short_day)


def demo_webhook(home: Path) -> str:
    """Where the demo receives webhooks."""
    return DemoSourceSpec(int((home / PORT_FILE).read_text(encoding="ascii"))).webhook


def _has_all_scopes(engine: Engine, key: str) -> bool:
    try:
        # A key issued before a scope was added to the platform lacks that scope.
        return verify_key(engine, key).scopes >= set(SCOPES)
    except AccessError:
        return False

"""Which credential an endpoint uses, and whether the secret that it refers to can be read here."""

import os
from pathlib import Path

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.registry.rows import RegistryRows, Row
from platform_defs.store.tables.registry import reg_prov_credential


def choose_credential(rows: RegistryRows, code: str, endpoint: str, operation: Operation) -> Row | None:
    """The credential of the narrowest scope; among several of one scope that with the smallest priority number."""
    found = rows.scoped(reg_prov_credential, code, endpoint, operation)
    if not found:
        return None
    narrowest = _scope(found[-1])
    return min((row for row in found if _scope(row) == narrowest), key=lambda row: (row["priority"], row["id"]))


def secret_is_present(reference: str | None) -> bool:
    """Whether a reference leads to something on this machine; the secret itself is not read."""
    kind, _, target = (reference or "").partition(":")
    if kind == "env":
        return bool(os.environ.get(target))
    return kind == "file" and Path(target).is_file()


def _scope(row: Row) -> tuple[str | None, str]:
    return row["endpoint_name"], row["operation_type"]

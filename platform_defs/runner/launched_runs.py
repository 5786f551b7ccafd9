"""The payload of rows for runs that Dagster launched: which versions of definition rows such a run needs."""

from collections.abc import Mapping
from typing import Any

from platform_defs.work.rows import LAUNCHED_RUNS, Work

_VERSIONS = "definition_versions"


def launch_payload(versions: Mapping[str, int]) -> dict[str, Any]:
    """`versions` are the version counters at the moment of the launch."""
    return {_VERSIONS: dict(versions)}


def needed_versions(row: Work) -> Mapping[str, int]:
    """The version counters that definitions must have reached before the run of this row may start.

    Rows of any other kind need none, because their jobs are in the code alone. Nor do rows that a launcher wrote before
    it recorded versions: they were queued before the runner was started with this code, so that all definitions it
    loads are newer than they are.
    """
    versions: Mapping[str, int] = row.payload.get(_VERSIONS, {}) if row.kind in LAUNCHED_RUNS else {}
    return versions

"""Rows for runs that Dagster launched: which versions of definition rows such a run needs, which source it queries."""

from collections.abc import Mapping
from typing import Any

from dagster import DagsterRun
from sqlalchemy import Connection, select

from platform_defs.arrivals.kinds_of_work import MODEL_TAG
from platform_defs.arrivals.partitions import MODEL_PREFIX
from platform_defs.sources.named import source_resource
from platform_defs.store.tables.arrivals import metrics_model
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


def source_of_run(connection: Connection, run: DagsterRun) -> str | None:
    """The resource of a run that executes models, which all query the same source; None for any other run."""
    models = {key.path[1] for key in run.asset_selection or () if len(key.path) == 2 and key.path[0] == MODEL_PREFIX}
    if not models and MODEL_TAG in run.tags:
        models = {run.tags[MODEL_TAG]}
    if not models:
        return None
    query = select(metrics_model.c.source).where(metrics_model.c.model_id.in_(sorted(models))).distinct()
    sources = {source_resource(source) for source in connection.execute(query).scalars()}
    return sources.pop() if len(sources) == 1 else None

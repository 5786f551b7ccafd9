"""Dagster assets and jobs, one module per kind of work; this module only gathers them."""

from dagster import Definitions

from assets import arrivals, lineage, models, retention, selfcheck


def definitions() -> Definitions:
    return Definitions.merge(
        arrivals.definitions(),
        lineage.definitions(),
        models.definitions(),
        retention.definitions(),
        selfcheck.definitions(),
    )

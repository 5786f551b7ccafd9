"""Dagster assets and jobs, one module per kind of work; this module only gathers them."""

from dagster import Definitions

from assets import lineage, selfcheck


def definitions() -> Definitions:
    return Definitions.merge(lineage.definitions(), selfcheck.definitions())

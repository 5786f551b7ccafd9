"""The operation matrix (seed 4.8): what each metadata operation of Gravitino says about the graph."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.facts_builder import Found
from platform_defs.lineage.extract.gravitino import containers, glossary, metrics, tables, tags

# What has not ended well has changed nothing yet; a listener that sends no type sends one event per operation.
_WITHOUT_EFFECT = frozenset({"START", "RUNNING", "ABORT", "FAIL"})

OPERATIONS: Mapping[str, Callable[[Event], Found]] = MappingProxyType(
    {
        "create_table": tables.upsert_table,
        "load_table": tables.upsert_table,
        "alter_table": tables.alter_table,
        "drop_table": tables.drop_table,
        "create_schema": containers.upsert_schema,
        "alter_schema": containers.upsert_schema,
        "load_schema": containers.upsert_schema,
        "drop_schema": containers.drop_schema,
        "create_catalog": containers.upsert_catalog,
        "alter_catalog": containers.upsert_catalog,
        "drop_catalog": containers.drop_catalog,
        "register_metric": metrics.upsert_metric,
        "alter_metric": metrics.upsert_metric,
        "drop_metric": metrics.drop_metric,
        "create_wordroot": partial(glossary.upsert, "wordroot"),
        "alter_wordroot": partial(glossary.upsert, "wordroot"),
        "drop_wordroot": partial(glossary.drop, "wordroot"),
        "create_modifier": partial(glossary.upsert, "modifier"),
        "alter_modifier": partial(glossary.upsert, "modifier"),
        "drop_modifier": partial(glossary.drop, "modifier"),
        "create_unit": partial(glossary.upsert, "unit"),
        "alter_unit": partial(glossary.upsert, "unit"),
        "drop_unit": partial(glossary.drop, "unit"),
        "create_valuedomain": partial(glossary.upsert, "valuedomain"),
        "alter_valuedomain": partial(glossary.upsert, "valuedomain"),
        "drop_valuedomain": partial(glossary.drop, "valuedomain"),
        "create_tag": partial(glossary.upsert, "tag"),
        "alter_tag": partial(glossary.upsert, "tag"),
        "drop_tag": partial(glossary.drop, "tag"),
        "associate_tags": tags.associate_tags,
    }
)


def operation_of(event: Event) -> str | None:
    """What follows the last dot of the job's name."""
    return None if event.job_name is None else event.job_name.rpartition(".")[2].lower()


def changes_metadata(event: Event) -> bool:
    return event.event_type not in _WITHOUT_EFFECT


def operation_facts(operation: str | None, event: Event) -> Found | None:
    """None for an operation that the matrix does not have."""
    extract = OPERATIONS.get(operation or "")
    return None if extract is None else extract(event)

"""The operation matrix (seed 4.8): which function extracts the facts of each metadata operation of Gravitino."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.extract.facts_builder import ExtractedFacts
from platform_defs.lineage.extract.gravitino import containers, glossary, metrics, tables, tags

# An operation that has not succeeded, or not yet, changes nothing. An event without a type counts as a success,
# because listeners that send no type send one event per operation.
_WITHOUT_EFFECT = frozenset({"START", "RUNNING", "ABORT", "FAIL"})

OPERATIONS: Mapping[str, Callable[[Event], ExtractedFacts]] = MappingProxyType(
    {
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
        "create_wordroot": partial(glossary.upsert_terms, "wordroot"),
        "alter_wordroot": partial(glossary.upsert_terms, "wordroot"),
        "drop_wordroot": partial(glossary.drop_terms, "wordroot"),
        "create_modifier": partial(glossary.upsert_terms, "modifier"),
        "alter_modifier": partial(glossary.upsert_terms, "modifier"),
        "drop_modifier": partial(glossary.drop_terms, "modifier"),
        "create_unit": partial(glossary.upsert_terms, "unit"),
        "alter_unit": partial(glossary.upsert_terms, "unit"),
        "drop_unit": partial(glossary.drop_terms, "unit"),
        "create_valuedomain": partial(glossary.upsert_terms, "valuedomain"),
        "alter_valuedomain": partial(glossary.upsert_terms, "valuedomain"),
        "drop_valuedomain": partial(glossary.drop_terms, "valuedomain"),
        "create_tag": partial(glossary.upsert_terms, "tag"),
        "alter_tag": partial(glossary.upsert_terms, "tag"),
        "drop_tag": partial(glossary.drop_terms, "tag"),
        "associate_tags": tags.associate_tags,
    }
)

# Operations whose event may have the SQL that made the table: it names other tables too.
OPERATIONS_WITH_SQL: Mapping[str, Callable[[Event, LogicalTables], ExtractedFacts]] = MappingProxyType(
    {
        "create_table": tables.upsert_table,
        "load_table": tables.upsert_table,
        "alter_table": tables.alter_table,
    }
)


def operation_of(event: Event) -> str | None:
    """The part of the job's name after its last dot."""
    return None if event.job_name is None else event.job_name.rpartition(".")[2].lower()


def changes_metadata(event: Event) -> bool:
    return event.event_type not in _WITHOUT_EFFECT


def operation_facts(operation: str | None, event: Event, named: LogicalTables) -> ExtractedFacts | None:
    """The facts of the operation; None if the matrix does not contain it. named: the tables that its SQL means."""
    if extract_with_sql := OPERATIONS_WITH_SQL.get(operation or ""):
        return extract_with_sql(event, named)
    extract = OPERATIONS.get(operation or "")
    return None if extract is None else extract(event)

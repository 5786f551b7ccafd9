"""Operations on tables: create and load describe a whole table; alter lists changes and describes the result."""

from dataclasses import replace
from typing import Any

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import schema_columns
from platform_defs.lineage.extract.compute.lineage import add_lineage, sql_text
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.extract.facts_builder import ExtractedFacts, FactsBuilder
from platform_defs.lineage.extract.gravitino.changes import Changes
from platform_defs.lineage.extract.gravitino.containers import drop_assets
from platform_defs.lineage.extract.gravitino.facets import facet_props, says_all_entries, target_datasets
from platform_defs.lineage.extract.gravitino.names import ref_of
from platform_defs.lineage.facts import ColumnSet, Ref
from platform_defs.lineage.indexes import LIST, is_of_changes

_KEYS = {
    "description": "description",
    "partitions": "partitions",
    "distribution": "distribution",
    "sortOrders": "sortOrders",
    "indexes": LIST,
    "creator": "creator",
    "createTime": "createTime",
    "lastModifier": "lastModifier",
    "lastModifiedTime": "lastModifiedTime",
}


def upsert_table(event: Event, tables: LogicalTables) -> ExtractedFacts:
    """The facts of create_table and load_table, which describe a whole table."""
    builder = FactsBuilder()
    for dataset in target_datasets(event):
        table = ref_of("table", dataset)
        if table is not None:
            all_entries = says_all_entries(dataset.facet("gravitino"))
            builder.exists(table, _table_props(event, dataset), all_entries=all_entries)
            _add_columns(builder, table, dataset)
    return _with_sql(builder, event, tables)


def alter_table(event: Event, tables: LogicalTables) -> ExtractedFacts:
    """The facts of alter_table: the changes that it lists, and the table as it is afterwards."""
    builder = FactsBuilder()
    for dataset in target_datasets(event):
        table = ref_of("table", dataset)
        if table is None:
            continue
        _add_alteration(builder, event, dataset, Changes(table, dataset.facet("gravitino").get("changes")))
    return _with_sql(builder, event, tables)


def drop_table(event: Event) -> ExtractedFacts:
    return drop_assets("table", event)


def _add_alteration(builder: FactsBuilder, event: Event, dataset: Dataset, changes: Changes) -> None:
    """The listed changes win over the facets, because a facet may describe the table as it was before them."""
    for move in changes.moves:
        builder.add(move)
    all_entries = says_all_entries(dataset.facet("gravitino"))
    described, changed_props = _table_props(event, dataset), changes.props
    if LIST in described:
        # the facet lists all indexes as they are after the changes
        changed_props = {name: value for name, value in changed_props.items() if not is_of_changes(name)}
    builder.exists(changes.table, {**described, **changed_props}, all_entries=all_entries)
    changed = changes.columns
    columns = schema_columns(changes.table, dataset)
    if columns is not None:
        merged = (replace(column, props={**column.props, **changed.pop(column.ref, {})}) for column in columns)
        builder.add(ColumnSet(changes.table, tuple(merged)))
    for ref, props in changed.items():
        builder.exists(ref, props)


def _with_sql(builder: FactsBuilder, event: Event, tables: LogicalTables) -> ExtractedFacts:
    """Adds the lineage of the SQL statement that made the table, such as CREATE TABLE AS, if the event has one."""
    sql = None if sql_text(event) is None else add_lineage(builder, event, tables)
    return ExtractedFacts(builder.facts, sql)


def _table_props(event: Event, dataset: Dataset) -> dict[str, Any]:
    props = facet_props(dataset.facet("gravitino"), _KEYS)
    if event.producer is not None:
        props["producer"] = event.producer
    return props


def _add_columns(builder: FactsBuilder, table: Ref, dataset: Dataset) -> None:
    columns = schema_columns(table, dataset)
    if columns is not None:
        builder.add(ColumnSet(table, columns))

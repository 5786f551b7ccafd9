"""Operations on tables: create and load say all of a table, alter says what changed and what came of it."""

from dataclasses import replace
from typing import Any

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import schema_columns
from platform_defs.lineage.extract.compute.lineage import add_lineage, sql_text
from platform_defs.lineage.extract.facts_builder import Assets, Found
from platform_defs.lineage.extract.gravitino.changes import Changes
from platform_defs.lineage.extract.gravitino.containers import drop, facet_props, has_all_entries, targets
from platform_defs.lineage.extract.gravitino.names import ref_of
from platform_defs.lineage.facts import ColumnSet, Ref

_KEYS = {
    "description": "description",
    "partitions": "partitions",
    "distribution": "distribution",
    "sortOrders": "sortOrders",
    "indexes": "indexes",
    "creator": "creator",
    "createTime": "createTime",
    "lastModifier": "lastModifier",
    "lastModifiedTime": "lastModifiedTime",
}


def upsert_table(event: Event) -> Found:
    assets = Assets()
    for dataset in targets(event):
        table = ref_of("table", dataset)
        if table is not None:
            all_entries = has_all_entries(dataset.facet("gravitino"))
            assets.exists(table, _table_props(event, dataset), all_entries=all_entries)
            _add_columns(assets, table, dataset)
    return _with_sql(assets, event)


def alter_table(event: Event) -> Found:
    assets = Assets()
    for dataset in targets(event):
        named = ref_of("table", dataset)
        if named is None:
            continue
        _alter(assets, event, dataset, Changes(named, dataset.facet("gravitino").get("changes")))
    return _with_sql(assets, event)


def drop_table(event: Event) -> Found:
    return drop("table", event)


def _alter(assets: Assets, event: Event, dataset: Dataset, changes: Changes) -> None:
    """The changes are the reason of the event; the facets, which may also repeat the table as it was, yield to them."""
    for move in changes.moves:
        assets.add(move)
    all_entries = has_all_entries(dataset.facet("gravitino"))
    assets.exists(changes.table, {**_table_props(event, dataset), **changes.props}, all_entries=all_entries)
    changed = changes.columns
    columns = schema_columns(changes.table, dataset)
    if columns is not None:
        merged = (replace(column, props={**column.props, **changed.pop(column.ref, {})}) for column in columns)
        assets.add(ColumnSet(changes.table, tuple(merged)))
    for ref, props in changed.items():
        assets.exists(ref, props)


def _with_sql(assets: Assets, event: Event) -> Found:
    """A table that a statement made, such as CREATE TABLE AS, also has that statement's lineage."""
    sql = None if sql_text(event) is None else add_lineage(assets, event)
    return Found(assets.facts, sql)


def _table_props(event: Event, dataset: Dataset) -> dict[str, Any]:
    props = facet_props(dataset.facet("gravitino"), _KEYS)
    if event.producer is not None:
        props["producer"] = event.producer
    return props


def _add_columns(assets: Assets, table: Ref, dataset: Dataset) -> None:
    columns = schema_columns(table, dataset)
    if columns is not None:
        assets.add(ColumnSet(table, columns))

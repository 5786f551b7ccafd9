"""What a compute engine's event says: its tables, the SQL node between them, and how columns derive from columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.lineage.events import Dataset, Event, Kind, facet_of
from platform_defs.lineage.extract.columns import column_names, is_deleted, schema_columns
from platform_defs.lineage.extract.compute.column_lineage import Sources, edge_props, facet_sources
from platform_defs.lineage.extract.compute.engines import dialect_of, engine_of, parser_dialect
from platform_defs.lineage.extract.compute.names import Names, spoken_name
from platform_defs.lineage.extract.compute.sql import Output, column_outputs, same_table
from platform_defs.lineage.extract.facts_builder import Assets, Found
from platform_defs.lineage.facts import ColumnSet, ColumnsUnlinked, Linked, LinkSet, Ref

_DERIVES = frozenset({"DERIVES_FROM"})


def lineage_facts(event: Event) -> Found:
    """Everything that the event says of the graph, by the rules for compute engines."""
    assets = Assets()
    names = Names(event)
    for dataset in event.inputs:
        _add_input(assets, names.of(dataset), dataset)
    for dataset in event.outputs:
        _add_output(assets, names.of(dataset), dataset, event.producer)
    if event.dataset is not None:
        _add_output(assets, names.of(event.dataset), event.dataset, None)
    return Found(_with_lineage(assets, event, names), sql_ref(event))


def add_lineage(assets: Assets, event: Event) -> Ref | None:
    """The lineage alone, for an event whose tables have been said already; the SQL node, if there is one."""
    _with_lineage(assets, event, Names(event))
    return sql_ref(event)


def sql_text(event: Event) -> str | None:
    facet = facet_of(event.job_facets, "sql")
    query = facet.get("query")
    return query.strip() or None if isinstance(query, str) and not is_deleted(facet) else None


def sql_ref(event: Event) -> Ref | None:
    """The SQL node: one per text and dialect; a job that names tables but no text has one of its own."""
    text = sql_text(event)
    if text is not None:
        return Ref("sql", (canonical_hash({"sql": text, "dialect": dialect_of(event)}),))
    if event.kind is Kind.DATASET or not (event.inputs or event.outputs):
        return None
    return Ref("sql", (canonical_hash({"jobNamespace": event.job_namespace, "jobName": event.job_name}),))


def _with_lineage(assets: Assets, event: Event, names: Names) -> tuple[Any, ...]:
    sql = sql_ref(event)
    if sql is not None:
        assets.exists(sql, _sql_props(event))
        for dataset in event.inputs:
            assets.exists(names.of(dataset))
            assets.linked(Linked("INPUT_OF", names.of(dataset), sql))
        for dataset in event.outputs:
            assets.exists(names.of(dataset))
            assets.linked(Linked("OUTPUT_TO", sql, names.of(dataset)))
    _add_column_lineage(assets, event, names)
    return assets.facts


def _sql_props(event: Event) -> dict[str, Any]:
    said = {
        "content": sql_text(event),
        "dialect": dialect_of(event),
        "engine": engine_of(event),
        "jobNamespace": event.job_namespace,
        "jobName": event.job_name,
    }
    return {key: value for key, value in said.items() if value is not None}


def _add_input(assets: Assets, table: Ref, dataset: Dataset) -> None:
    """A reader may know fewer columns than there are (engines prune what they read), so it adds and removes none."""
    assets.exists(table, _documentation(dataset))
    columns = schema_columns(table, dataset)
    if columns is None:
        return
    if not columns and is_deleted(dataset.facet("schema")):
        assets.add(ColumnSet(table, ()))
    for column in columns:
        assets.exists(column.ref, column.props)


def _add_output(assets: Assets, table: Ref, dataset: Dataset, producer: str | None) -> None:
    props = _documentation(dataset)
    if producer is not None:
        props["producer"] = producer
    assets.exists(table, props)
    columns = schema_columns(table, dataset)
    # engines that could not tell the schema send an empty one
    if columns or (columns is not None and is_deleted(dataset.facet("schema"))):
        assets.add(ColumnSet(table, columns))


def _documentation(dataset: Dataset) -> dict[str, Any]:
    facet = dataset.facet("documentation")
    if is_deleted(facet):
        return {"description": None}
    description = facet.get("description")
    return {"description": description} if isinstance(description, str) else {}


def _add_column_lineage(assets: Assets, event: Event, names: Names) -> None:
    sources: Sources = {}
    said = False
    for dataset in (*event.outputs, *(() if event.dataset is None else (event.dataset,))):
        facet = dataset.facet("columnLineage")
        if not facet:
            continue
        said = True
        table = names.of(dataset)
        if is_deleted(facet):
            _forget_column_lineage(assets, table, dataset, facet)
        else:
            sources |= facet_sources(table, facet, column_names(dataset), names)
    text = sql_text(event)
    if not said and text is not None and event.inputs and event.outputs:
        sources = _sources_of_sql(event, text, names)
    for (output, source), transformations in sources.items():
        assets.exists(output)
        assets.exists(source)
        assets.linked(Linked("DERIVES_FROM", output, source, edge_props(transformations)))


def _forget_column_lineage(assets: Assets, table: Ref, dataset: Dataset, facet: Mapping[str, Any]) -> None:
    """A deleted facet usually does not repeat its content, and then means all of it."""
    fields = facet.get("fields")
    if not fields or not isinstance(fields, dict):
        assets.add(ColumnsUnlinked(table, _DERIVES))
        return
    for name in dict.fromkeys([*fields, *column_names(dataset)]):
        assets.add(LinkSet(Ref("column", (*table.name, name)), _DERIVES, ()))


def _sources_of_sql(event: Event, text: str, names: Names) -> Sources:
    inputs = {names.of(dataset): _columns_of(dataset) for dataset in event.inputs}
    outputs = {names.of(dataset): _columns_of(dataset) for dataset in event.outputs}
    schemas = tuple((spoken_name(table), tuple(columns.values())) for table, columns in inputs.items())
    sources: Sources = {}
    for output in column_outputs(text, parser_dialect(event), schemas):
        table = _target(output, list(outputs))
        if table is None:
            continue
        column = Ref("column", (*table.name, _output_column(output, outputs[table])))
        for source in output.sources:
            origin = _matching(source.table, list(inputs))
            # a parser takes some words for columns; a table that says its columns has no others
            name = None if origin is None else inputs[origin].get(source.column.lower())
            if origin is not None and (name is not None or not inputs[origin]):
                name = name or source.column
                key = (column, Ref("column", (*origin.name, name)))
                sources.setdefault(key, []).append({"type": "DIRECT", "subtype": source.subtype})
    return sources


def _columns_of(dataset: Dataset) -> dict[str, str]:
    """The dataset's own spelling of its columns, by lower case."""
    return {name.lower(): name for name in column_names(dataset)}


def _output_column(output: Output, columns: dict[str, str]) -> str:
    """INSERT fills by position what it does not list; elsewhere the name in the text is the column's."""
    spelled = columns.get(output.column.lower())
    if spelled is not None or output.named or not output.target or output.width != len(columns):
        return spelled or output.column
    return list(columns.values())[output.position]


def _target(output: Output, tables: Sequence[Ref]) -> Ref | None:
    """The event knows what was written: a text that names its target otherwise still filled the only output."""
    return (_matching(output.target, tables) if output.target else None) or (tables[0] if len(tables) == 1 else None)


def _matching(written: tuple[str, ...], tables: Sequence[Ref]) -> Ref | None:
    found = [table for table in tables if same_table(written, spoken_name(table))]
    return found[0] if len(found) == 1 else None

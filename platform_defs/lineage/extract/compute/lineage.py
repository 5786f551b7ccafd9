"""Facts of a compute engine's event: its tables, the SQL node between them, and how columns derive from columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.lineage.events import Dataset, Event, EventKind, facet_of
from platform_defs.lineage.extract.columns import column_names, is_deleted, schema_columns
from platform_defs.lineage.extract.compute.column_lineage import ColumnSources, edge_props, read_column_lineage
from platform_defs.lineage.extract.compute.engines import dialect_of, engine_of, parser_dialect
from platform_defs.lineage.extract.compute.names import LogicalTables, sql_name
from platform_defs.lineage.extract.compute.sql import Output, column_outputs, same_table
from platform_defs.lineage.extract.facts_builder import ExtractedFacts, FactsBuilder
from platform_defs.lineage.facts import ColumnSet, ColumnsUnlinked, Linked, LinkSet, Ref

_DERIVES = frozenset({"DERIVES_FROM"})


def lineage_facts(event: Event) -> ExtractedFacts:
    """All facts of the event, by the rules for compute engines."""
    builder = FactsBuilder()
    tables = LogicalTables(event)
    for dataset in event.inputs:
        _add_input(builder, tables.of(dataset), dataset)
    for dataset in event.outputs:
        _add_output(builder, tables.of(dataset), dataset, event.producer)
    if event.dataset is not None:
        _add_output(builder, tables.of(event.dataset), event.dataset, None)
    return ExtractedFacts(_with_lineage(builder, event, tables), sql_ref(event))


def add_lineage(builder: FactsBuilder, event: Event) -> Ref | None:
    """Adds only the lineage, for an event whose tables are in the builder already. Returns the SQL node, if any."""
    _with_lineage(builder, event, LogicalTables(event))
    return sql_ref(event)


def sql_text(event: Event) -> str | None:
    facet = facet_of(event.job_facets, "sql")
    query = facet.get("query")
    return query.strip() or None if isinstance(query, str) and not is_deleted(facet) else None


def sql_ref(event: Event) -> Ref | None:
    """The SQL node: one per text and dialect. A job that has datasets but no SQL text gets one of its own."""
    text = sql_text(event)
    if text is not None:
        return Ref("sql", (canonical_hash({"sql": text, "dialect": dialect_of(event)}),))
    if event.kind is EventKind.DATASET or not (event.inputs or event.outputs):
        return None
    return Ref("sql", (canonical_hash({"jobNamespace": event.job_namespace, "jobName": event.job_name}),))


def _with_lineage(builder: FactsBuilder, event: Event, tables: LogicalTables) -> tuple[Any, ...]:
    sql = sql_ref(event)
    if sql is not None:
        builder.exists(sql, _sql_props(event))
        for dataset in event.inputs:
            builder.exists(tables.of(dataset))
            builder.link(Linked("INPUT_OF", tables.of(dataset), sql))
        for dataset in event.outputs:
            builder.exists(tables.of(dataset))
            builder.link(Linked("OUTPUT_TO", sql, tables.of(dataset)))
    _add_column_edges(builder, event, tables)
    return builder.facts


def _sql_props(event: Event) -> dict[str, Any]:
    props = {
        "content": sql_text(event),
        "dialect": dialect_of(event),
        "engine": engine_of(event),
        "jobNamespace": event.job_namespace,
        "jobName": event.job_name,
    }
    return {key: value for key, value in props.items() if value is not None}


def _add_input(builder: FactsBuilder, table: Ref, dataset: Dataset) -> None:
    """Adds the columns that a reader lists, and removes none: engines list only the columns that they read."""
    builder.exists(table, _documentation(dataset))
    columns = schema_columns(table, dataset)
    if columns is None:
        return
    if not columns and is_deleted(dataset.facet("schema")):
        builder.add(ColumnSet(table, ()))
    for column in columns:
        builder.exists(column.ref, column.props)


def _add_output(builder: FactsBuilder, table: Ref, dataset: Dataset, producer: str | None) -> None:
    props = _documentation(dataset)
    if producer is not None:
        props["producer"] = producer
    builder.exists(table, props)
    columns = schema_columns(table, dataset)
    # an engine that does not know the schema sends an empty one, which must not remove all columns
    if columns or (columns is not None and is_deleted(dataset.facet("schema"))):
        builder.add(ColumnSet(table, columns))


def _documentation(dataset: Dataset) -> dict[str, Any]:
    facet = dataset.facet("documentation")
    if is_deleted(facet):
        return {"description": None}
    description = facet.get("description")
    return {"description": description} if isinstance(description, str) else {}


def _add_column_edges(builder: FactsBuilder, event: Event, tables: LogicalTables) -> None:
    sources: ColumnSources = {}
    has_facet = False
    for dataset in (*event.outputs, *(() if event.dataset is None else (event.dataset,))):
        facet = dataset.facet("columnLineage")
        if not facet:
            continue
        has_facet = True
        table = tables.of(dataset)
        if is_deleted(facet):
            _forget_column_lineage(builder, table, dataset, facet)
        else:
            sources |= read_column_lineage(table, facet, column_names(dataset), tables)
    text = sql_text(event)
    if not has_facet and text is not None and event.inputs and event.outputs:
        sources = _sources_of_sql(event, text, tables)
    for (output, source), transformations in sources.items():
        builder.exists(output)
        builder.exists(source)
        builder.link(Linked("DERIVES_FROM", output, source, edge_props(transformations)))


def _forget_column_lineage(builder: FactsBuilder, table: Ref, dataset: Dataset, facet: Mapping[str, Any]) -> None:
    """Removes the column lineage of the fields that a deleted facet lists; without fields, all of the dataset's."""
    fields = facet.get("fields")
    if not fields or not isinstance(fields, dict):
        builder.add(ColumnsUnlinked(table, _DERIVES))
        return
    for name in dict.fromkeys([*fields, *column_names(dataset)]):
        builder.add(LinkSet(Ref("column", (*table.name, name)), _DERIVES, ()))


def _sources_of_sql(event: Event, text: str, tables: LogicalTables) -> ColumnSources:
    inputs = {tables.of(dataset): _columns_of(dataset) for dataset in event.inputs}
    outputs = {tables.of(dataset): _columns_of(dataset) for dataset in event.outputs}
    schemas = tuple((sql_name(table), tuple(columns.values())) for table, columns in inputs.items())
    sources: ColumnSources = {}
    for output in column_outputs(text, parser_dialect(event), schemas):
        table = _target(output, list(outputs))
        if table is None:
            continue
        column = Ref("column", (*table.name, _output_column(output, outputs[table])))
        for source in output.sources:
            origin = _find_table(source.table, list(inputs))
            # The parser takes some other words for columns. If the input table lists its columns, only those count.
            name = None if origin is None else inputs[origin].get(source.column.lower())
            if origin is not None and (name is not None or not inputs[origin]):
                name = name or source.column
                key = (column, Ref("column", (*origin.name, name)))
                sources.setdefault(key, []).append({"type": "DIRECT", "subtype": source.subtype})
    return sources


def _columns_of(dataset: Dataset) -> dict[str, str]:
    """The names of the dataset's columns by their lower-case form."""
    return {name.lower(): name for name in column_names(dataset)}


def _output_column(output: Output, columns: dict[str, str]) -> str:
    """The output column's name. An INSERT that lists no columns fills by position; else the name in the text counts."""
    spelled = columns.get(output.column.lower())
    if spelled is not None or output.named or not output.target or output.width != len(columns):
        return spelled or output.column
    return list(columns.values())[output.position]


def _target(output: Output, tables: Sequence[Ref]) -> Ref | None:
    """The output table. If the event has only one, the text filled it, even if the text spells its name differently."""
    return (_find_table(output.target, tables) if output.target else None) or (tables[0] if len(tables) == 1 else None)


def _find_table(written: tuple[str, ...], tables: Sequence[Ref]) -> Ref | None:
    found = [table for table in tables if same_table(written, sql_name(table))]
    return found[0] if len(found) == 1 else None

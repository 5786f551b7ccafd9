"""Facts of a compute engine's event: its tables, the SQL node between them, and how columns derive from columns."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.lineage.events import Dataset, Event, EventKind, facet_of
from platform_defs.lineage.extract.columns import add_column, column_names, is_blank, is_deleted, schema_columns
from platform_defs.lineage.extract.compute.column_lineage import ColumnSources, edge_props, read_column_lineage
from platform_defs.lineage.extract.compute.engines import dialect_of, engine_of
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.extract.compute.sql_lineage import sources_of_sql
from platform_defs.lineage.extract.facts_builder import ExtractedFacts, FactsBuilder
from platform_defs.lineage.facts import (
    SPEAKER,
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Statement,
)

_DERIVES = frozenset({"DERIVES_FROM"})
_SPACES = re.compile(r"\s+")


def lineage_facts(event: Event, tables: LogicalTables) -> ExtractedFacts:
    """All facts of the event, by the rules for compute engines."""
    builder = FactsBuilder()
    for dataset in event.inputs:
        _add_table(builder, tables.of(dataset), dataset)
    for dataset in event.outputs:
        _add_table(builder, tables.of(dataset), dataset, event.producer)
    if event.dataset is not None:
        _add_table(builder, tables.of(event.dataset), event.dataset)
    sql = sql_ref(event)
    if sql is not None:
        builder.exists(sql, _sql_props(event))
    statement = _statement(event, tables, sql, _column_sources(builder, event, tables))
    for column in (*statement.written, *statement.read):
        assert column.ref.parent is not None
        builder.exists(column.ref.parent)
    if statement.names_dataset or statement.completes:
        builder.add(statement)
    _add_lifecycle(builder, event, tables)
    return ExtractedFacts(builder.facts, sql)


def add_lineage(builder: FactsBuilder, event: Event, tables: LogicalTables) -> Ref | None:
    """Adds only the lineage, for an event whose tables are in the builder already. Returns the SQL node, if any.

    A catalog is no job: what it says holds until it says otherwise.
    """
    sql = sql_ref(event)
    if sql is not None:
        builder.exists(sql, _sql_props(event))
    for dataset in (*event.inputs, *event.outputs):
        builder.exists(tables.of(dataset))
    for link in _links(event, tables, sql, _column_sources(builder, event, tables)):
        if link.type == "DERIVES_FROM":
            builder.exists(link.source)
            builder.exists(link.target)
        builder.link(link)
    return sql


def sql_text(event: Event) -> str | None:
    facet = facet_of(event.job_facets, "sql")
    query = facet.get("query")
    return query.strip() or None if isinstance(query, str) and not is_deleted(facet) else None


def sql_ref(event: Event) -> Ref | None:
    """The SQL node: one per job and text. A job that has datasets but no SQL text gets one of its own.

    The same text of two jobs may read and write different tables. The dialect is not part of the identity, because the
    facet that tells it may be missing in some events of a run.
    """
    text = sql_text(event)
    if text is None and (event.kind is EventKind.DATASET or not (event.inputs or event.outputs)):
        return None
    job = {"jobNamespace": event.job_namespace, "jobName": event.job_name}
    if text is None:
        return Ref("sql", (canonical_hash(job),))
    normal = _SPACES.sub(" ", text.rstrip("; \t\r\n")).strip()
    return Ref("sql", (canonical_hash({**job, "sql": normal}),))


def _statement(event: Event, tables: LogicalTables, sql: Ref | None, sources: ColumnSources) -> Statement:
    """What the event says on behalf of its job, or of the producer of dataset events about one table."""
    if event.dataset is not None:
        table = tables.of(event.dataset)
        speaker = Ref(SPEAKER, ("dataset", event.producer or "", *table.name))
    else:
        speaker = Ref(SPEAKER, ("job", event.job_namespace or "", event.job_name or ""))
    written_in = event.outputs if event.dataset is None else (event.dataset,)
    written = _columns(tables, written_in)
    read = _columns(tables, event.inputs)
    for output, source in sources:
        if output.kind == "column":
            written.setdefault(output, Exists(output, "Column"))
        read.setdefault(source, Exists(source, "Column"))
    # a table that is read and written has the columns that are written: they follow the job's runs
    both = {ref: read.pop(ref) for ref in written if ref in read}
    for column in written.values():
        add_column(both, column)
    return Statement(
        speaker=speaker,
        run=event.run_id or "",
        # an event without a run is a run of its own, which is complete
        completes=event.event_type == "COMPLETE" or event.kind is not EventKind.RUN,
        names_dataset=any(True for _ in event.datasets),
        outputs=tuple(dict.fromkeys(tables.of(dataset) for dataset in written_in)),
        written=tuple(both[ref] for ref in written),
        read=tuple(read.values()),
        links=tuple(_links(event, tables, sql, sources)),
    )


def _columns(tables: LogicalTables, datasets: Sequence[Dataset]) -> dict[Ref, Exists]:
    columns: dict[Ref, Exists] = {}
    for dataset in datasets:
        for column in schema_columns(tables.of(dataset), dataset) or ():
            add_column(columns, _without_blank_description(column))
    return columns


def _without_blank_description(column: Exists) -> Exists:
    """dbt describes what nobody has documented by an empty text, which must not hide what another job knows."""
    if is_blank(column.props.get("description")):
        return replace(column, props={name: value for name, value in column.props.items() if name != "description"})
    return column


def _links(event: Event, tables: LogicalTables, sql: Ref | None, sources: ColumnSources) -> Iterator[Linked]:
    if sql is not None:
        for table in dict.fromkeys(tables.of(dataset) for dataset in event.inputs):
            yield Linked("INPUT_OF", table, sql)
        for table in dict.fromkeys(tables.of(dataset) for dataset in event.outputs):
            yield Linked("OUTPUT_TO", sql, table)
    for (output, source), transformations in sources.items():
        yield Linked("DERIVES_FROM", output, source, edge_props(transformations))


def _add_table(builder: FactsBuilder, table: Ref, dataset: Dataset, producer: str | None = None) -> None:
    props = _documentation(dataset)
    if producer is not None:
        props["producer"] = producer
    builder.exists(table, props)
    if is_deleted(dataset.facet("schema")):
        builder.add(ColumnSet(table, ()))


def _add_lifecycle(builder: FactsBuilder, event: Event, tables: LogicalTables) -> None:
    """Drops and renames that the event reports, after all else that it says. TRUNCATE removes rows, not lineage."""
    if event.event_type != "COMPLETE":
        return
    for dataset in event.datasets:
        facet = dataset.facet("lifecycleStateChange")
        if is_deleted(facet):
            continue
        match str(facet.get("lifecycleStateChange", "")).upper():
            case "DROP":
                builder.add(Dropped(tables.of(dataset)))
            case "RENAME":
                previous = facet_of(facet, "previousIdentifier")
                namespace, name = previous.get("namespace"), previous.get("name")
                if isinstance(namespace, str) and isinstance(name, str) and namespace.strip() and name.strip():
                    old = tables.by_name(namespace, name)
                    if old != tables.of(dataset):
                        builder.add(Renamed(old, tables.of(dataset)))


def _sql_props(event: Event) -> dict[str, Any]:
    props = {
        "content": sql_text(event),
        "dialect": dialect_of(event),
        "engine": engine_of(event),
        "jobNamespace": event.job_namespace,
        "jobName": event.job_name,
    }
    return {key: value for key, value in props.items() if value is not None}


def _documentation(dataset: Dataset) -> dict[str, Any]:
    facet = dataset.facet("documentation")
    if is_deleted(facet):
        return {"description": None}
    description = facet.get("description")
    return {"description": description} if isinstance(description, str) and not is_blank(description) else {}


def _column_sources(builder: FactsBuilder, event: Event, tables: LogicalTables) -> ColumnSources:
    """Where the columns of the outputs come from: by the facets, else by the SQL text."""
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
            sources |= read_column_lineage(table, facet, tables)
    text = sql_text(event)
    if not has_facet and text is not None and event.inputs and event.outputs:
        return sources_of_sql(event, text, tables)
    return sources


def _forget_column_lineage(builder: FactsBuilder, table: Ref, dataset: Dataset, facet: Mapping[str, Any]) -> None:
    """Removes the column lineage of the fields that a deleted facet lists; without fields, all of the dataset's."""
    fields = facet.get("fields")
    if not fields or not isinstance(fields, dict):
        builder.add(ColumnsUnlinked(table, _DERIVES))
        return
    for name in dict.fromkeys([*fields, *column_names(dataset)]):
        builder.add(LinkSet(Ref("column", (*table.name, name)), _DERIVES, ()))

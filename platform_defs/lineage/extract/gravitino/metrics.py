"""Operations on metrics: the metric, its schema, the metrics it is computed from, and the columns it reads."""

import json

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.facts_builder import ExtractedFacts, FactsBuilder
from platform_defs.lineage.extract.gravitino import glossary
from platform_defs.lineage.extract.gravitino.facets import target_datasets
from platform_defs.lineage.extract.gravitino.names import parse_namespace
from platform_defs.lineage.extract.gravitino.pairs import read_pairs
from platform_defs.lineage.facts import Linked, LinkSet, Ref

_LABELS = {"ATOMIC": "AtomicMetric", "DERIVED": "DerivedMetric", "COMPOSITE": "CompositeMetric"}
_KEYS = {
    "name": "name",
    "comment": "description",
    "unit": "unit",
    "aggregationLogic": "aggregationLogic",
    "calculationFormula": "calculationFormula",
}
_PARENT_EDGES = frozenset({"DERIVED_FROM", "COMPUTED_FROM"})


def upsert_metric(event: Event) -> ExtractedFacts:
    builder = FactsBuilder()
    for dataset in target_datasets(event):
        pairs = read_pairs(dataset)
        if code := pairs.get("code"):
            _add_metric(builder, Ref("metric", (code,)), pairs, dataset)
    return ExtractedFacts(builder.facts)


def drop_metric(event: Event) -> ExtractedFacts:
    return glossary.drop_terms("metric", event)


def _add_metric(builder: FactsBuilder, metric: Ref, pairs: dict[str, str | None], dataset: Dataset) -> None:
    label = _label(pairs)
    props = {prop: pairs[key] for key, prop in _KEYS.items() if key in pairs}
    builder.exists(metric, props, label=label)
    schema = _schema(pairs, dataset)
    if schema is not None:
        builder.exists(schema)
        builder.link(Linked("HAS_METRIC", schema, metric))
    if "parentMetricCodes" in pairs:
        edge = "COMPUTED_FROM" if label == "CompositeMetric" else "DERIVED_FROM"
        parents = (Ref("metric", (code,)) for code in _words(pairs["parentMetricCodes"]))
        builder.add(LinkSet(metric, _PARENT_EDGES, tuple(Linked(edge, metric, parent) for parent in parents)))
    table = pairs.get("refTableName")
    for key, edge in (("measureColumns", "MEASURES"), ("filterColumns", "FILTERS_BY")):
        if key in pairs and schema is not None and table:
            columns = (Ref("column", (*schema.name, table, name)) for name in _column_names(pairs[key]))
            links = tuple(Linked(edge, metric, column) for column in columns)
            builder.add(LinkSet(metric, frozenset({edge}), links))


def _label(pairs: dict[str, str | None]) -> str:
    kind = (pairs.get("metricType") or "").strip().upper()
    if kind in _LABELS:
        return _LABELS[kind]
    # A listener may leave the type out. Then the parents tell it: only derived and composite metrics have any.
    parents = _words(pairs.get("parentMetricCodes"))
    return "AtomicMetric" if not parents else "DerivedMetric" if len(parents) == 1 else "CompositeMetric"


def _schema(pairs: dict[str, str | None], dataset: Dataset) -> Ref | None:
    """The schema that the metric refers to, else the schema in the dataset's own namespace and name."""
    namespace = parse_namespace(dataset.namespace)
    if namespace is None or not namespace.path:
        return None
    metalake, *rest = namespace.path
    catalog = pairs.get("refCatalogName") or (rest[0] if rest else None)
    schema = pairs.get("refSchemaName") or (dataset.name.split(".", 1)[0] if rest and "." in dataset.name else None)
    return Ref("schema", (metalake, catalog, schema)) if catalog and schema else None


def _words(text: str | None) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def _column_names(text: str | None) -> list[str]:
    """Column names in JSON text (a list of names, or of objects with a name) or in a list separated by commas."""
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return _words(text)
    names = [_column_name(item) for item in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(name for name in names if name))


def _column_name(item: object) -> str | None:
    if isinstance(item, dict):
        item = next((item[key] for key in ("name", "columnName", "column") if key in item), None)
    return item.strip() if isinstance(item, str) else None

"""The operation matrix of the seed, row by row: the facts that each operation gives."""

import json
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import Extraction, facts_of
from platform_defs.lineage.extract.gravitino.operations import OPERATIONS, OPERATIONS_WITH_SQL
from platform_defs.lineage.facts import (
    ColumnSet,
    Dropped,
    Exists,
    Fact,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Unlinked,
)
from platform_defs.lineage.indexes import added_index, deleted_index
from tests.lineage.wire import CATALOG, METALAKE, at_catalog, at_metalake, dataset, facet, gravitino, pairs, schema

LAKE = Ref("catalog", (METALAKE, CATALOG))
SALES = Ref("schema", (*LAKE.name, "sales"))
ORDERS = Ref("table", (*SALES.name, "orders"))
PRODUCER = "https://gravitino.apache.org/listener"
THE_CATALOG = Exists(LAKE, "Catalog", {"name": CATALOG, "metalake": METALAKE})
THE_SCHEMA = Exists(SALES, "Schema", {"name": "sales"})
TAGS = frozenset({"HAS_TAG", "HAS_VALUE_DOMAIN"})
PARENTS = frozenset({"DERIVED_FROM", "COMPUTED_FROM"})


def extracted(raw: dict[str, Any]) -> Extraction:
    return facts_of(parse_event(raw), SourceType.GRAVITINO)


def column(name: str, table: Ref = ORDERS) -> Ref:
    return Ref("column", (*table.name, name))


def described_table() -> dict[str, Any]:
    columns = [{"name": "id", "nullable": False, "autoIncrement": True, "defaultValue": None}]
    about = facet(
        description="all orders",
        properties={"format": "orc", "owner": None},
        partitions="day(ts)",
        creator="ann",
        createTime="2024-01-01T00:00:00Z",
        columns=columns,
    )
    fields = {"fields": [{"name": "id", "type": "long", "description": "key"}, {"name": "note", "type": "string"}]}
    return at_catalog("sales.orders", gravitino=about, schema=fields)


TABLE_FACTS: tuple[Fact, ...] = (
    THE_CATALOG,
    THE_SCHEMA,
    Exists(
        ORDERS,
        "Table",
        {
            "name": "orders",
            "producer": PRODUCER,
            "description": "all orders",
            "properties.format": "orc",
            "properties.owner": None,
            "partitions": "day(ts)",
            "creator": "ann",
            "createTime": "2024-01-01T00:00:00Z",
        },
        all_entries=True,
    ),
    ColumnSet(
        ORDERS,
        (
            Exists(
                column("id"),
                "Column",
                {
                    "name": "id",
                    "dataType": "long",
                    "description": "key",
                    "nullable": False,
                    "autoIncrement": True,
                    "defaultValue": None,
                },
            ),
            Exists(column("note"), "Column", {"name": "note", "dataType": "string"}),
        ),
    ),
)
CATALOG_FACET = facet(type="RELATIONAL", provider="hive", description="the lake", properties={"uri": "thrift://h"})
METRIC = {
    "code": "gmv",
    "name": "GMV",
    "metricType": "ATOMIC",
    "comment": "gross",
    "unit": "CNY",
    "calculationFormula": "SUM(amount)",
    "refCatalogName": CATALOG,
    "refSchemaName": "sales",
    "refTableName": "orders",
    "measureColumns": json.dumps(["amount"]),
    "filterColumns": json.dumps([{"name": "state"}, {"name": "day"}]),
}
GMV = Ref("metric", ("gmv",))
METRIC_FACTS: tuple[Fact, ...] = (
    Exists(
        GMV,
        "AtomicMetric",
        {"code": "gmv", "name": "GMV", "description": "gross", "unit": "CNY", "calculationFormula": "SUM(amount)"},
    ),
    THE_CATALOG,
    THE_SCHEMA,
    Linked("HAS_METRIC", SALES, GMV),
    LinkSet(GMV, frozenset({"MEASURES"}), (Linked("MEASURES", GMV, column("amount")),)),
    LinkSet(
        GMV,
        frozenset({"FILTERS_BY"}),
        (Linked("FILTERS_BY", GMV, column("state")), Linked("FILTERS_BY", GMV, column("day"))),
    ),
)

# operation -> (dataset, facts); one entry for each operation of the matrix
GLOSSARY = {
    "wordroot": (
        "WordRoot",
        {"code": "amt", "name": "amount", "dataType": "decimal", "comment": "money"},
        {"code": "amt", "name": "amount", "dataType": "decimal", "description": "money"},
    ),
    "modifier": (
        "Modifier",
        {"code": "1d", "name": "day", "modifierType": "TIME", "comment": None},
        {"code": "1d", "name": "day", "modifierType": "TIME", "description": None},
    ),
    "unit": ("Unit", {"code": "CNY", "name": "Yuan", "symbol": "¥"}, {"code": "CNY", "name": "Yuan", "symbol": "¥"}),
    "valuedomain": (
        "ValueDomain",
        {
            "code": "SEX",
            "name": "sex",
            "domainType": "ENUM",
            "domainLevel": "BUSINESS",
            "items": "1:m,2:f",
            "comment": "c",
            "dataType": "int",
        },
        {
            "code": "SEX",
            "name": "sex",
            "domainType": "ENUM",
            "domainLevel": "BUSINESS",
            "items": "1:m,2:f",
            "description": "c",
            "dataType": "int",
        },
    ),
    "tag": (
        "Tag",
        {"name": "pii", "comment": "personal", "properties": '{"level": "3"}'},
        {"name": "pii", "description": "personal", "properties.level": "3"},
    ),
}
MATRIX: dict[str, tuple[dict[str, Any], tuple[Fact, ...]]] = {
    "create_table": (described_table(), TABLE_FACTS),
    "load_table": (described_table(), TABLE_FACTS),
    "alter_table": (
        at_catalog("sales.orders", gravitino=facet(changes=[{"type": "UPDATE_COMMENT", "newComment": "new"}])),
        (
            THE_CATALOG,
            THE_SCHEMA,
            Exists(ORDERS, "Table", {"name": "orders", "producer": PRODUCER, "description": "new"}),
        ),
    ),
    "drop_table": (
        at_catalog("sales.orders", lifecycleStateChange={"lifecycleStateChange": "DROP"}),
        (Dropped(ORDERS),),
    ),
    "create_schema": (at_catalog("sales"), (THE_CATALOG, THE_SCHEMA)),
    "alter_schema": (
        at_catalog("sales", gravitino=facet(description="all sales", properties={"k": "v"})),
        (
            THE_CATALOG,
            Exists(SALES, "Schema", {"name": "sales", "description": "all sales", "properties.k": "v"}, True),
        ),
    ),
    "load_schema": (at_catalog("sales"), (THE_CATALOG, THE_SCHEMA)),
    "drop_schema": (at_catalog("sales"), (Dropped(SALES),)),
    "create_catalog": (at_metalake(CATALOG), (THE_CATALOG,)),
    "alter_catalog": (
        at_metalake(CATALOG, gravitino=CATALOG_FACET),
        (
            Exists(
                LAKE,
                "Catalog",
                {
                    "name": CATALOG,
                    "metalake": METALAKE,
                    "catalogType": "RELATIONAL",
                    "provider": "hive",
                    "description": "the lake",
                    "properties.uri": "thrift://h",
                },
                all_entries=True,
            ),
        ),
    ),
    "drop_catalog": (at_metalake(CATALOG), (Dropped(LAKE),)),
    "register_metric": (pairs("sales.gmv", **METRIC), METRIC_FACTS),
    "alter_metric": (pairs("sales.gmv", **METRIC), METRIC_FACTS),
    "drop_metric": (pairs("sales.gmv", code="gmv"), (Dropped(GMV),)),
    "associate_tags": (
        at_catalog(
            "sales.orders.sex",
            gravitinoTag={"objectType": "COLUMN", "tagsToAdd": ["pii", "vd:SEX"], "tagsToRemove": ["old"]},
        ),
        (
            Unlinked("HAS_TAG", column("sex"), Ref("tag", ("old",))),
            Linked("HAS_TAG", column("sex"), Ref("tag", ("pii",))),
            Linked("HAS_VALUE_DOMAIN", column("sex"), Ref("valuedomain", ("SEX",))),
        ),
    ),
}
for kind, (label, values, props) in GLOSSARY.items():
    identity = "name" if kind == "tag" else "code"
    ref = Ref(kind, (str(values[identity]),))
    for verb in ("create", "alter"):
        MATRIX[f"{verb}_{kind}"] = (pairs("x", **values), (Exists(ref, label, props, kind == "tag"),))
    MATRIX[f"drop_{kind}"] = (pairs("x", **{identity: values[identity]}), (Dropped(ref),))


@pytest.mark.parametrize("operation", MATRIX)
def test_each_operation_of_the_matrix_says_its_facts(operation: str) -> None:
    about, facts = MATRIX[operation]
    assert extracted(gravitino(operation, about)) == Extraction(facts, operation)


def test_no_operation_is_missing() -> None:
    assert OPERATIONS.keys() | OPERATIONS_WITH_SQL.keys() == MATRIX.keys()
    assert len(MATRIX) == 30


def test_an_unknown_operation_says_nothing_and_is_told() -> None:
    assert extracted(gravitino("purge_table", at_catalog("sales.orders"))) == Extraction(
        (), "purge_table", unknown_operation=True
    )


@pytest.mark.parametrize("event_type", ["START", "RUNNING", "FAIL", "ABORT"])
def test_an_operation_that_did_not_end_well_changes_nothing(event_type: str) -> None:
    assert extracted(gravitino("drop_table", at_catalog("sales.orders"), eventType=event_type)).facts == ()


@pytest.mark.parametrize("event_type", [None, "COMPLETE", "complete", "OTHER"])
def test_every_other_type_counts(event_type: str | None) -> None:
    raw = gravitino("drop_table", at_catalog("sales.orders"), eventType=event_type)
    assert extracted(raw).facts == (Dropped(ORDERS),)


# names


def test_older_namespaces_name_the_same_table() -> None:
    raw = gravitino("drop_table", dataset(f"gravitino://{METALAKE}/{CATALOG}", "sales.orders"))
    assert extracted(raw).facts == (Dropped(ORDERS),)


def test_a_table_name_may_hold_dots() -> None:
    raw = gravitino("drop_table", at_catalog("sales.orders.2024.v1"))
    assert extracted(raw).facts == (Dropped(Ref("table", (*SALES.name, "orders.2024.v1"))),)


@pytest.mark.parametrize("name", ["orders", "sales.", ".orders"])
def test_a_name_that_does_not_reach_a_table_says_nothing(name: str) -> None:
    assert extracted(gravitino("create_table", at_catalog(name))).facts == ()


# alter_table


def altered(*changes: dict[str, Any], **facets: Any) -> tuple[Fact, ...]:
    return extracted(
        gravitino("alter_table", at_catalog("sales.orders", gravitino=facet(changes=list(changes)), **facets))
    ).facts


def table_facts(table: Ref = ORDERS, **props: Any) -> tuple[Fact, ...]:
    said = {"name": table.name[-1], "producer": PRODUCER, **props}
    return (THE_CATALOG, THE_SCHEMA, Exists(table, "Table", said))


def test_a_renamed_table_is_spoken_of_by_its_new_name() -> None:
    new = Ref("table", (*SALES.name, "orders2"))
    assert altered({"type": "RENAME_TABLE", "newName": "orders2"}, schema=schema("id")) == (
        Renamed(ORDERS, new),
        *table_facts(new),
        ColumnSet(new, (Exists(column("id", new), "Column", {"name": "id", "dataType": "int"}),)),
    )


def test_properties_are_set_and_removed_one_by_one() -> None:
    facts = altered(
        {"type": "SET_PROPERTY", "propertyKey": "a.b", "propertyValue": "1"},
        {"type": "REMOVE_PROPERTY", "propertyKey": "c"},
    )
    assert facts == table_facts(**{"properties.a.b": "1", "properties.c": None})


@pytest.mark.parametrize("operation", ["create_table", "load_table", "alter_table"])
@pytest.mark.parametrize(
    ("said", "entries", "all_entries"),
    [
        ({"properties": {"k": 1}}, {"properties.k": "1"}, True),
        ({"properties": {}}, {}, True),
        ({"properties": None}, {}, False),
        ({"properties": "odd"}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_map_of_properties_is_all_of_them_and_none_says_nothing(
    operation: str, said: dict[str, Any], entries: dict[str, str], all_entries: bool
) -> None:
    facts = extracted(gravitino(operation, at_catalog("sales.orders", gravitino=facet(**said)))).facts
    props = {"name": "orders", "producer": PRODUCER, **entries}
    assert facts == (THE_CATALOG, THE_SCHEMA, Exists(ORDERS, "Table", props, all_entries))


def test_changes_of_properties_go_into_the_map_that_comes_with_them() -> None:
    changes = [
        {"type": "SET_PROPERTY", "propertyKey": "new", "propertyValue": "1"},
        {"type": "REMOVE_PROPERTY", "propertyKey": "old"},
    ]
    about = facet(changes=changes, properties={"old": "0", "kept": "2"})
    facts = extracted(gravitino("alter_table", at_catalog("sales.orders", gravitino=about))).facts
    entries = {"properties.old": None, "properties.kept": "2", "properties.new": "1"}
    assert facts[-1] == Exists(ORDERS, "Table", {"name": "orders", "producer": PRODUCER, **entries}, True)


@pytest.mark.parametrize(("text", "all_entries"), [("{}", True), ("null", False), ("{", False), (None, False)])
def test_the_properties_of_a_tag_are_all_of_them_if_they_are_told(text: str | None, all_entries: bool) -> None:
    facts = extracted(gravitino("alter_tag", pairs("x", name="pii", properties=text))).facts
    assert facts == (Exists(Ref("tag", ("pii",)), "Tag", {"name": "pii"}, all_entries),)


COLUMN_CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "type": "ADD_COLUMN",
            "dataType": "int",
            "columnComment": "c",
            "nullable": True,
            "autoIncrement": False,
            "defaultValue": "1",
            "position": "FIRST",
        },
        {
            "dataType": "int",
            "description": "c",
            "nullable": True,
            "autoIncrement": False,
            "defaultValue": "1",
            "position": "FIRST",
        },
    ),
    ({"type": "UPDATE_COLUMN_TYPE", "dataType": "long"}, {"dataType": "long"}),
    ({"type": "UPDATE_COLUMN_COMMENT", "newComment": "c"}, {"description": "c"}),
    ({"type": "UPDATE_COLUMN_NULLABILITY", "nullable": False}, {"nullable": False}),
    ({"type": "UPDATE_COLUMN_DEFAULT_VALUE", "defaultValue": "0"}, {"defaultValue": "0"}),
    ({"type": "UPDATE_COLUMN_AUTO_INCREMENT", "autoIncrement": True}, {"autoIncrement": True}),
    ({"type": "UPDATE_COLUMN_POSITION", "position": "AFTER x"}, {"position": "AFTER x"}),
]


@pytest.mark.parametrize(("change", "props"), COLUMN_CHANGES)
def test_a_change_of_a_column_says_only_what_changed(change: dict[str, Any], props: dict[str, Any]) -> None:
    facts = altered({**change, "columnName": "a"})
    assert facts == (*table_facts(), Exists(column("a"), "Column", {"name": "a", **props}))


def test_a_change_of_a_column_goes_into_the_resulting_column_set() -> None:
    facts = altered({"type": "UPDATE_COLUMN_COMMENT", "columnName": "a", "newComment": "c"}, schema=schema("a"))
    props = {"name": "a", "dataType": "int", "description": "c"}
    assert facts == (*table_facts(), ColumnSet(ORDERS, (Exists(column("a"), "Column", props),)))


def test_moves_of_columns_are_said_in_their_order() -> None:
    facts = altered(
        {"type": "DELETE_COLUMN", "columnName": "x"},
        {"type": "RENAME_COLUMN", "oldColumnName": "a", "newColumnName": "x"},
        {"type": "RENAME_COLUMN", "oldColumnName": "b", "newColumnName": "a"},
        {"type": "UPDATE_COLUMN_TYPE", "columnName": "a", "dataType": "long"},
    )
    assert facts == (
        Dropped(column("x")),
        Renamed(column("a"), column("x")),
        Renamed(column("b"), column("a")),
        *table_facts(),
        Exists(column("x"), "Column", {"name": "x"}),
        Exists(column("a"), "Column", {"name": "a", "dataType": "long"}),
    )


def test_indexes_come_with_the_facet() -> None:
    change = {"type": "ADD_INDEX", "indexName": "i", "indexType": "PRIMARY_KEY", "indexColumns": ["id"]}
    raw = gravitino("alter_table", at_catalog("sales.orders", gravitino=facet(changes=[change], indexes="i(id)")))
    assert extracted(raw).facts == table_facts(indexes="i(id)")


def test_indexes_come_from_the_changes_if_the_facet_has_none() -> None:
    added = altered({"type": "ADD_INDEX", "indexName": "i", "indexType": "PRIMARY_KEY", "indexColumns": ["id"]})
    (single,) = added_index({}, "i")
    assert added == table_facts(**{single: '{"columns":["id"],"name":"i","type":"PRIMARY_KEY"}'})
    assert altered({"type": "DELETE_INDEX", "indexName": "i"}) == table_facts(**deleted_index("i"))
    assert single in deleted_index("i")


@pytest.mark.parametrize("changes", [None, "odd", [None, 1, {}, {"type": "NEW_KIND"}, {"type": "ADD_COLUMN"}]])
def test_changes_that_nobody_knows_say_nothing(changes: object) -> None:
    raw = gravitino("alter_table", at_catalog("sales.orders", gravitino=facet(changes=changes)))
    assert extracted(raw).facts == table_facts()


def test_a_statement_that_made_the_table_is_its_lineage_too() -> None:
    raw = gravitino("create_table", at_catalog("sales.orders"), inputs=[at_catalog("raw.orders")])
    raw["job"]["facets"] = {"sql": {"query": "create table orders as select 1"}}
    found = extracted(raw)
    assert found.sql is not None
    assert Linked("OUTPUT_TO", found.sql, ORDERS) in found.facts
    assert Linked("INPUT_OF", Ref("table", (*LAKE.name, "raw", "orders")), found.sql) in found.facts


def test_a_deleted_facet_takes_back_what_it_said() -> None:
    facts = extracted(gravitino("load_schema", at_catalog("sales", gravitino={"_deleted": True}))).facts
    assert facts == (THE_CATALOG, Exists(SALES, "Schema", {"name": "sales", "description": None}, True))


# tags


def tagged(name: str, **content: Any) -> tuple[Fact, ...]:
    return extracted(gravitino("associate_tags", at_catalog(name, gravitinoTag=content))).facts


@pytest.mark.parametrize(("kind", "name", "ref"), [("SCHEMA", "sales", SALES), ("TABLE", "sales.orders", ORDERS)])
def test_every_kind_of_asset_can_be_tagged(kind: str, name: str, ref: Ref) -> None:
    assert tagged(name, objectType=kind, tagsToAdd=["a"]) == (Linked("HAS_TAG", ref, Ref("tag", ("a",))),)


def test_a_catalog_can_be_tagged() -> None:
    raw = gravitino("associate_tags", at_metalake(CATALOG, gravitinoTag={"objectType": "CATALOG", "tagsToAdd": ["a"]}))
    assert extracted(raw).facts == (Linked("HAS_TAG", LAKE, Ref("tag", ("a",))),)


def test_the_resulting_set_of_tags_replaces_all_others() -> None:
    facts = tagged(
        "sales.orders.sex", objectType="COLUMN", tagsToAdd=["a"], tagsToRemove=["b"], associatedTags=["a", "vd:SEX"]
    )
    links = (
        Linked("HAS_TAG", column("sex"), Ref("tag", ("a",))),
        Linked("HAS_VALUE_DOMAIN", column("sex"), Ref("valuedomain", ("SEX",))),
    )
    assert facts == (LinkSet(column("sex"), TAGS, links),)


def test_a_resulting_set_that_contradicts_the_change_is_not_believed() -> None:
    facts = tagged("sales", objectType="SCHEMA", tagsToAdd=["a"], associatedTags=[])
    assert facts == (Linked("HAS_TAG", SALES, Ref("tag", ("a",))),)


def test_a_deleted_tag_facet_removes_all_tags() -> None:
    assert tagged("sales", objectType="SCHEMA", _deleted=True) == (LinkSet(SALES, TAGS, ()),)


@pytest.mark.parametrize("kind", ["FILESET", None, 5])
def test_tags_of_what_the_graph_does_not_have_say_nothing(kind: object) -> None:
    assert tagged("sales", objectType=kind, tagsToAdd=["a"]) == ()


# metrics


@pytest.mark.parametrize(
    ("kind", "label", "edge"),
    [("DERIVED", "DerivedMetric", "DERIVED_FROM"), ("COMPOSITE", "CompositeMetric", "COMPUTED_FROM")],
)
def test_metrics_are_made_of_metrics(kind: str, label: str, edge: str) -> None:
    values = {"code": "m", "metricType": kind, "parentMetricCodes": "gmv, uv,,gmv"}
    metric = Ref("metric", ("m",))
    facts = extracted(gravitino("register_metric", pairs("m", **values))).facts
    assert facts == (
        Exists(metric, label, {"code": "m"}),
        LinkSet(metric, PARENTS, (Linked(edge, metric, GMV), Linked(edge, metric, Ref("metric", ("uv",))))),
    )


@pytest.mark.parametrize("text", ["not json", "{", "[1, null, {}]", "", None])
def test_column_lists_that_are_no_lists_do_no_harm(text: str | None) -> None:
    values = METRIC | {"measureColumns": text, "filterColumns": "[]"}
    facts = extracted(gravitino("register_metric", pairs("sales.gmv", **values))).facts
    assert facts[:4] == METRIC_FACTS[:4]

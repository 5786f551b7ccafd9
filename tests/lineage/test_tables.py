"""Tables of the lineage graph as assets: their keys, which are shown, and that nothing keeps them from loading."""

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, SensorResult, SkipReason, build_sensor_context
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

import platform_defs.definitions
from assets.lineage_tables import definitions, load_tables, table_spec
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.chain_lineage import send_events
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphUnavailable
from platform_defs.lineage.tables.dependencies import TableAsset, assets_of
from platform_defs.lineage.tables.keys import Table, asset_key_of, groups_of
from platform_defs.lineage.tables.seen import note_new_tables
from platform_defs.lineage.tables.shown import ShownTable, load_shown, refresh
from platform_defs.runner.fingerprint import read_fingerprint
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine, read
from platform_defs.work import definition_versions
from sensors.lineage_tables import is_due, lineage_tables
from tests.arrivals.world import add_model
from tests.lineage.test_corpus_parsing import corpus, lacks
from tests.lineage_events import create_table, run_event

ACME, OTHER = Tenant(7, "acme", "Acme"), Tenant(8, "other", "Other")
LATER = timedelta(minutes=1)


# -- keys and dependencies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [
        ("hive://warehouse", "mart.orders", ["hive~~warehouse", "mart.orders"]),
        ("mysql://db:3306", "shop.订单 2", ["mysql~~db~3A3306", "shop.订单~202"]),
        ("s3://bucket", "/raw/100%/~x", ["s3~~bucket", "~2Fraw~2F100~25~2F~7Ex"]),
        ("", "..", ["~_", "~2E~2E"]),
    ],
)
def test_a_key_stays_readable_and_has_nothing_that_a_router_takes_apart(
    namespace: str, name: str, expected: list[str]
) -> None:
    assert asset_key_of(Table(7, namespace, name)) == ["lineage", "7", *expected]


tables = st.builds(Table, st.integers(1, 3), st.text(max_size=200), st.text(max_size=200))


@given(tables, tables)
def test_two_tables_have_two_keys(one: Table, other: Table) -> None:
    assert (asset_key_of(one) == asset_key_of(other)) == (one == other)
    assert ("/".join(asset_key_of(one)) == "/".join(asset_key_of(other))) == (one == other)
    assert not set("%/?#&+ ") & set("".join(asset_key_of(one)))
    assert not {"", ".", ".."} & set(asset_key_of(one))
    assert len(AssetKey(asset_key_of(one)).to_string()) < 450


@pytest.mark.parametrize(
    ("namespace", "table", "expected"),
    [
        ("dw", Table(7, "dw", "ORDERS"), ["tables", "ORDERS"]),
        ("mysql://dw:3306/sales", Table(7, "mysql://dw:3306", "sales.ORDERS"), ["tables", "ORDERS"]),
        ("mysql://dw:3306/sales", Table(7, "mysql://dw:3306", "other.ORDERS"), None),
        ("dw", Table(7, "dw", "with space"), None),
        ("", Table(7, "", "ORDERS"), None),
    ],
)
def test_a_table_of_the_namespace_of_arrivals_has_the_key_of_arrivals(
    namespace: str, table: Table, expected: list[str] | None
) -> None:
    assert asset_key_of(table, namespace) == (expected or asset_key_of(table))


def shown(name: str, *upstream: str, tenant: int = 7, namespace: str = "ns") -> ShownTable:
    return ShownTable(tenant, f"table:{name}", "acme", namespace, name, tuple(f"table:{other}" for other in upstream))


def test_dependencies_inside_a_cycle_are_left_out_and_named() -> None:
    found = assets_of([shown("a", "c"), shown("b", "a"), shown("c", "b", "x"), shown("d", "d", "a"), shown("x")], "")
    by_name = {key[-1]: asset for key, asset in found.items()}
    assert {name: [key[-1] for key in asset.upstream] for name, asset in by_name.items()} == {
        "a": [],
        "b": [],
        "c": ["x"],
        "d": ["a"],
        "x": [],
    }
    assert {name: [key[-1] for key in asset.in_cycle] for name, asset in by_name.items()} == {
        "a": ["c"],
        "b": ["a"],
        "c": ["b"],
        "d": ["d"],
        "x": [],
    }


def test_a_group_has_the_tables_of_one_tenant_and_namespace_and_says_so() -> None:
    assert groups_of([(7, "acme", "mysql://db:3306")]) == {(7, "acme", "mysql://db:3306"): "acme_mysql_db_3306"}
    alike = [(7, "same", "a.b"), (7, "same", "a-b"), (8, "same", "a.b"), (7, "same", "库"), (7, "same", "表")]
    assert len(set(groups_of(alike).values())) == len(alike)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("marts.daily_sales", "marts.daily_sales in ns: a table that lineage events name."),
        ("![x](https://elsewhere/x.png)", "A table that lineage events name."),
        ("<img src=x>", "A table that lineage events name."),
    ],
)
def test_a_description_begins_with_the_name_unless_the_ui_would_take_it_for_markup(name: str, begins: str) -> None:
    (asset,) = assets_of([shown(name)], "").values()
    assert str(table_spec(asset).description).startswith(begins)


names = st.text(max_size=12) | st.sampled_from(["a", "a.b", "t", "%2F", "..", "__x", "x\0y"])
drawn_tables = st.lists(
    st.builds(
        ShownTable,
        st.integers(1, 2),
        st.sampled_from("abcdefgh"),
        names,
        names,
        names,
        st.lists(st.sampled_from("abcdefghi"), max_size=5).map(tuple),
    ),
    max_size=8,
    unique_by=lambda table: (table.tenant_id, table.table_id),
)


def graph_of(assets: dict[tuple[str, ...], TableAsset]) -> AssetGraph:
    """Loads the assets as the code server does."""
    by_key = {AssetKey(list(key)): asset for key, asset in assets.items()}
    graph = definitions(by_key, set()).get_repository_def().asset_graph
    assert {key for level in graph.toposorted_asset_keys_by_level for key in level} == set(by_key)
    return graph


@settings(deadline=None, max_examples=60)
@given(drawn_tables, names)
def test_whatever_the_tables_are_called_and_depend_on_they_load(drawn: list[ShownTable], namespace: str) -> None:
    assets = assets_of(drawn, namespace)
    graph = graph_of(assets)
    for key, asset in assets.items():
        assert {tuple(parent.path) for parent in graph.get(AssetKey(list(key))).parent_keys} == set(asset.upstream)


def test_a_chain_of_more_tables_than_pythons_stack_is_deep_has_no_cycle_until_it_is_closed() -> None:
    chain = [shown(f"{number:04}", f"{number - 1:04}") for number in range(3000)]
    assert not any(asset.in_cycle for asset in assets_of(chain, "").values())
    closed = assets_of([*chain[1:], shown("0000", "2999")], "")
    assert all(asset.in_cycle and not asset.upstream for asset in closed.values())


# -- the snapshot ---------------------------------------------------------------------------------------------------


def take_in(engine: Engine, events: list[dict[str, Any]], tenant: Tenant = ACME) -> None:
    add_tenant(engine, tenant)
    send_events(engine, EmbeddedGraph.on(engine), tenant, events)
    note_new_tables(engine, at=datetime.now(UTC) + LATER)


def refreshed(engine: Engine, limit: int = 100, without: frozenset[int] = frozenset()) -> dict[str, list[str]]:
    """The names of the shown tables, each with those of the tables that it depends on."""
    refresh(engine, EmbeddedGraph.on(engine), limit=limit, without=without)
    found = read(engine, load_shown)
    names = {table.table_id: table.name for table in found}
    return {table.name: [names[id] for id in table.upstream] for table in found}


def test_the_snapshot_has_the_newest_tables_that_exist_with_their_dependencies(engine: Engine) -> None:
    take_in(engine, [run_event(job="one"), run_event(job="two", reads=("mart.orders",), writes=("mart.daily",))])
    take_in(engine, [run_event(reads=(), writes=("x.theirs",), sql=None)], OTHER)
    assert refreshed(engine) == {
        "raw.orders": [],
        "mart.orders": ["raw.orders"],
        "mart.daily": ["mart.orders"],
        "x.theirs": [],
    }
    assert set(refreshed(engine, without=frozenset({8}))) == {"raw.orders", "mart.orders", "mart.daily"}
    assert set(refreshed(engine, limit=2, without=frozenset({8}))) == {"mart.orders", "mart.daily"}
    dropped = run_event(job="drop", reads=(), writes=("mart.daily",), sql=None, time="2026-03-02T00:00:00Z")
    dropped["outputs"][0]["facets"] = {"lifecycleStateChange": {"lifecycleStateChange": "DROP"}}
    take_in(engine, [dropped])
    assert set(refreshed(engine)) == {"raw.orders", "mart.orders", "x.theirs"}


def test_only_a_change_of_tables_or_dependencies_raises_the_version_and_no_run_waits_for_it(engine: Engine) -> None:
    graph = EmbeddedGraph.on(engine)
    before = read_fingerprint(engine)
    take_in(engine, [run_event()])
    assert refresh(engine, graph, limit=10, without=frozenset())
    after = read_fingerprint(engine)
    assert after.rows != before.rows  # the code server loads its definitions again
    assert (after, after.digest) == (before, before.digest)  # the runner keeps its fork server
    take_in(engine, [run_event(time="2026-03-01T11:00:00Z")])
    assert not refresh(engine, graph, limit=10, without=frozenset())
    assert read_fingerprint(engine).rows == after.rows


# -- in the code location -------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    opened = open_engine(Settings.load().database_url)
    migrate.upgrade(opened)
    yield opened
    opened.dispose()


def load_code_location() -> AssetGraph:
    repository = importlib.reload(platform_defs.definitions).defs.get_repository_def()
    assert repository.get_all_jobs()
    return repository.asset_graph


@pytest.mark.needs("data")
def test_with_all_real_events_the_code_location_loads_and_draws_their_tables(home: Engine) -> None:
    take_in(home, [raw for _, raw in corpus() if not lacks(raw)])
    assert refresh(home, EmbeddedGraph.on(home), limit=2000, without=frozenset())
    graph = load_code_location()
    tables = [key for key in graph.get_all_asset_keys() if key.path[0] == "lineage"]
    assert len(tables) > 200
    assert any(graph.get(key).parent_keys for key in tables)
    assert any("not drawn" in name for key in tables for name in graph.get(key).metadata)


def test_the_tables_are_drawn_also_while_neo4j_is_down(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(home, [run_event()])
    refresh(home, EmbeddedGraph.on(home), limit=10, without=frozenset())
    monkeypatch.setenv("PLATFORM_GRAPH_URL", "bolt://127.0.0.1:1")
    graph = load_code_location()
    assert len([key for key in graph.get_all_asset_keys() if key.path[0] == "lineage"]) == 2


def test_a_process_that_only_executes_runs_loads_no_tables(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(home, [run_event()])
    refresh(home, EmbeddedGraph.on(home), limit=10, without=frozenset())
    assert len(load_tables()) == 2
    monkeypatch.setattr(definition_versions, "_leaves_out_shown", False)
    definition_versions.leave_out_shown()
    assert load_tables() == {}


def test_runs_of_the_runner_and_of_the_ui_are_of_the_same_jobs(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner executes with definitions that lack the tables what the UI launched with them."""
    monkeypatch.setenv("PLATFORM_ARRIVALS_NAMESPACE", "hive://warehouse")
    add_model(home, "SALES", ["mart.orders"])
    take_in(home, [run_event()])
    refresh(home, EmbeddedGraph.on(home), limit=10, without=frozenset())

    def jobs() -> dict[str, str]:
        repository = importlib.reload(platform_defs.definitions).defs.get_repository_def()
        return {job.name: job.get_job_snapshot_id() for job in repository.get_all_jobs()}

    with_tables = jobs()
    monkeypatch.setattr(definition_versions, "_leaves_out_shown", True)
    assert jobs() == with_tables


def test_a_table_of_arrivals_and_of_lineage_is_one_asset_if_the_operator_names_the_namespace(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model(home, "SALES", ["mart.orders"])
    take_in(home, [run_event()])
    refresh(home, EmbeddedGraph.on(home), limit=10, without=frozenset())
    mart, model, raw = AssetKey(["tables", "mart.orders"]), AssetKey(["models", "SALES"]), ["tables", "raw.orders"]
    assert load_code_location().get(mart).parent_keys == set()
    monkeypatch.setenv("PLATFORM_ARRIVALS_NAMESPACE", "hive://warehouse")
    graph = load_code_location()
    assert graph.get(mart).parent_keys == {AssetKey(raw)}
    assert graph.get(mart).child_keys == {model}
    assert graph.get(mart).metadata["tenant"] == "7 (acme)"
    assert not [key for key in graph.get_all_asset_keys() if key.path[0] == "lineage"]


def test_a_tenant_that_is_not_observed_is_not_shown_even_before_the_next_tick(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(home, [run_event()])
    refresh(home, EmbeddedGraph.on(home), limit=10, without=frozenset())
    monkeypatch.setenv("PLATFORM_LINEAGE_OBSERVE_OFF", "7")
    assert load_tables() == {}


def test_the_sensor_brings_tables_of_events_into_the_snapshot_and_says_so(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(home, [run_event(), create_table((7, "acme", "Acme"))])
    with DagsterInstance.ephemeral() as instance:
        first = lineage_tables(build_sensor_context(instance=instance))
        assert isinstance(first, SensorResult)
        assert "changed" in str(first.skip_reason)
        assert isinstance(lineage_tables(build_sensor_context(instance=instance, cursor=first.cursor)), SkipReason)
        assert len(load_tables()) == 3
        # while the graph is away the tick fails, and what was shown stays
        monkeypatch.setenv("PLATFORM_GRAPH_URL", "bolt://127.0.0.1:1")
        with pytest.raises(GraphUnavailable):
            lineage_tables(build_sensor_context(instance=instance))
        assert len(load_tables()) == 3


def test_as_many_tables_are_shown_as_the_setting_says(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().lineage_tables == 2000
    take_in(home, [run_event(), run_event(job="two", reads=("mart.orders",), writes=("mart.daily",))])
    for most, expected in (("2", 2), ("0", 0)):
        monkeypatch.setenv("PLATFORM_LINEAGE_TABLES", most)
        with DagsterInstance.ephemeral() as instance:
            lineage_tables(build_sensor_context(instance=instance))
        assert len(load_tables()) == expected


def test_the_graph_is_asked_at_most_every_30_seconds_and_at_least_every_two_minutes() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    cursor = f'[5, "{now.isoformat()}"]'
    assert is_due(None, 5, now)
    assert not is_due(cursor, 6, now + timedelta(seconds=29))
    assert is_due(cursor, 6, now + timedelta(seconds=30))
    assert not is_due(cursor, 5, now + timedelta(seconds=119))
    assert is_due(cursor, 5, now + timedelta(seconds=120))


def test_the_first_table_of_a_platform_does_not_wait_for_the_look_before_it() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert is_due(f'[0, "{now.isoformat()}"]', 1, now + timedelta(seconds=1))
    assert not is_due(f'[0, "{now.isoformat()}"]', 0, now + timedelta(seconds=1))

"""A recovery that failed, and whose work others have done since, is no longer shown as failing."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckKey, DagsterInstance, build_sensor_context
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from assets.lineage import LINEAGE_GRAPH, RECOVERS
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphLost
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink import commit
from platform_defs.lineage.sink.commit import ParallelCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.upkeep import rebuild_requests, recovery, tenant_rebuild
from platform_defs.lineage.upkeep.recovery import is_recovery_needed, recover
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine, transact
from sensors.lineage import lineage_recovery
from tests.api.serving import serve_api
from tests.lineage_events import run_event

SOURCE = Principal("key", "spark", frozenset(), SourceType.COMPUTE, DEMO_TENANT)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Where also the youngest event counts as abandoned, so that no test waits until it is old."""
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setattr(recovery, "ABANDONED_AFTER", timedelta(seconds=-60))
    opened = open_engine(Settings.load().database_url)
    migrate.upgrade(opened)
    add_tenant(opened, DEMO_TENANT)
    yield opened
    opened.dispose()


def away(*_: object, **__: object) -> Any:
    raise GraphLost("Neo4j does not answer")


def fail_twice(engine: Engine, graph: EmbeddedGraph) -> None:
    for _ in range(2):
        with pytest.raises(Exception, match="Neo4j does not answer"):
            recover(engine, graph, patience=recovery.ABANDONED_AFTER)


def check_that_it_is_shown_until_it_is_healed(engine: Engine, heal: Callable[[], object]) -> None:
    with serve_api(engine) as api, DagsterInstance.ephemeral() as instance:

        def tick() -> bool | None:
            """What the asset check says after a tick of the sensor."""
            context = build_sensor_context(instance=instance)
            lineage_recovery(context)
            found = instance.event_log_storage.get_asset_check_execution_history(
                AssetCheckKey(LINEAGE_GRAPH, RECOVERS), limit=1
            )
            event = found[0].event
            evaluation = event and event.dagster_event and event.dagster_event.asset_check_evaluation_data
            return evaluation.passed if evaluation else None

        def state() -> str:
            return str(api.client.get("/readyz").json()["status"])

        assert is_recovery_needed(engine)
        assert (tick(), state()) == (False, "degraded")
        heal()
        assert not is_recovery_needed(engine)
        assert (tick(), state()) == (True, "ready")


def test_an_event_that_its_sender_sent_again_no_longer_counts_as_missing(
    home: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # another database stands for Neo4j: rows and graph are written by different transactions
    apart = open_engine(f"sqlite:///{tmp_path}/graph.db")
    migrate.upgrade(apart)
    graph = EmbeddedGraph.on(apart)
    committer = ParallelCommitter(home, graph, SinkMetrics(CollectorRegistry()))
    event = Intake(KnownTenants(home)).prepare(SOURCE, run_event()).prepared
    with monkeypatch.context() as outage:
        for module in (commit, recovery):
            outage.setattr(module, "apply_events", away)
        with pytest.raises(GraphLost):
            committer.commit([event])
        fail_twice(home, graph)

    def send_again() -> None:
        committer.commit([event])
        committer.flush()

    try:
        check_that_it_is_shown_until_it_is_healed(home, send_again)
    finally:
        committer.close()
        apart.dispose()


def test_a_graph_that_an_operator_has_rebuilt_no_longer_counts_as_wrong(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = EmbeddedGraph.on(home)
    transact(home, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))
    with monkeypatch.context() as outage:
        outage.setattr(tenant_rebuild, "rebuild", away)
        fail_twice(home, graph)
    check_that_it_is_shown_until_it_is_healed(home, lambda: rebuild_tenant(home, graph, DEMO_TENANT))

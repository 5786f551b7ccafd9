"""Dump, drop, restore, by the commands of docs/operations.md: afterwards every row of both databases is as before."""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance
from sqlalchemy import Engine, select
from sqlalchemy.engine import URL

from platform_defs import dagster_instance
from platform_defs.access.keys import issue_key, verify_key
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.arrivals.executions.model_run import ExecutionEnvironment, run_for_work
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file as read_models
from platform_defs.arrivals.models.life import disable_orphaned_subscriptions
from platform_defs.arrivals.notify.kpi_message import notify_subscribers
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.graph.open import open_graph
from platform_defs.graph.port import Graph
from platform_defs.ingest.registry.file import read_file as read_registry
from platform_defs.ingest.registry.loading import load as load_registry
from platform_defs.ingest.registry.presets import read_preset
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.webhooks.encryption import Encryption
from platform_defs.webhooks.secrets import reveal_secret
from tests.arrivals.world import logged_tasks
from tests.chains.making import make_chain
from tests.chains.making import start as start_chain
from tests.chains.runs.driving import Script, drive
from tests.conftest import dropped_databases, server_url
from tests.every_row import Rows, rows_of_every_table
from tests.graph.conftest import UNHURRIED, random_tenant
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import drain, items_of, paged
from tests.needs import ROOT, require
from tests.pages import read_blocks
from tests.test_cli import run
from tests.test_dagster_instance import nothing_much
from tests.waiting import PATIENCE_S
from tests.webhooks.receiver import SHANGHAI, receiving, sending, subscribe

SERVERS = (
    pytest.param("mysql", marks=pytest.mark.needs("mysql", "mysqldump", "neo4j", "time")),
    pytest.param("mariadb", marks=pytest.mark.needs("mariadb", "mariadb-dump", "time")),
)
EXAMPLES = ROOT / "docs" / "examples"
OP_TIME, DAY = "20261117", "2026-11-17"
SECRET = "Header,Authorization,Bearer s3cr3t"
# What must have rows for a comparison to say anything: of each system where its work ends up, and Dagster's own.
FILLED = {
    *("tenants", "api_keys", "reg_provenance", "ing_task_run_batch", "ing_record", "ing_cursor", "ing_outbox"),
    *("lineage_events", "metrics_etl_log", "metrics_model", "metrics_task_log", "metrics_kpi_value", "work"),
    *("metrics_webhook_subscription", "metrics_webhook_delivery", "metrics_webhook_attempt"),
    *("job_chain_definition", "job_run", "job_run_node", "job_run_drive", "job_audit"),
    *("runs", "run_tags", "snapshots", "event_logs", "asset_keys", "dynamic_partitions"),
}
# Rows by database and table.
Found = dict[tuple[str, str], Rows]
# `platform` with more patience for Neo4j than in production
PLATFORM = f"""#!{sys.executable}
from platform_defs.cli import main
from platform_defs.graph.neo4j import Timeouts
Timeouts.__init__.__defaults__ = {astuple(UNHURRIED)}
main()
"""


@dataclass(frozen=True)
class Operator:
    """Somebody with a shell on a machine whose platform is on servers."""

    folder: Path
    variables: dict[str, str]
    settings: Settings

    @property
    def databases(self) -> list[URL]:
        return [self.settings.database_url, self.settings.dagster_database_url or pytest.fail("no servers")]

    @property
    def names(self) -> list[str]:
        return [str(url.database) for url in self.databases]

    def spelled(self, text: str) -> str:
        """The page has the commands for MySQL with Neo4j, and says in words what is different elsewhere."""
        if self.settings.graph_url != "embedded":
            return text
        return re.sub(r"^platform lineage rebuild.*$", "", text.replace(" --set-gtid-purged=OFF", ""), flags=re.M)

    def sh(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(params=SERVERS)
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operator]:
    url = server_url(request.param).set(database=f"platform_test_{uuid.uuid4().hex[:12]}")
    programs = tmp_path / "bin"
    programs.mkdir()
    # the page says mysqldump and mysql; of MariaDB both have two names
    dump = Path(require("mysqldump" if request.param == "mysql" else "mariadb-dump"))
    (programs / "mysqldump").symlink_to(dump)
    client = next(filter(None, (shutil.which(name) for name in (dump.with_name("mysql"), "mariadb", "mysql"))))
    (programs / "mysql").symlink_to(client)
    (tmp_path / ".my.cnf").write_text(
        f"[client]\nhost={url.host}\nport={url.port}\nuser={url.username}\npassword={url.password or ''}\n"
    )
    (programs / "platform").write_text(PLATFORM)
    (programs / "platform").chmod(0o755)
    settings = Settings(
        home=tmp_path / "home",
        db_url=url.render_as_string(hide_password=False),
        graph_url=require("neo4j") if request.param == "mysql" else "embedded",
    )
    variables = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PLATFORM_HOME": str(settings.home),
        "PLATFORM_DB_URL": settings.db_url,
        "PLATFORM_GRAPH_URL": settings.graph_url,
    }
    operator = Operator(tmp_path, {**os.environ, **variables}, settings)
    yield operator
    dropped_databases(request.param, operator.names)


def test_servers_that_were_dumped_and_lost_are_as_before_after_the_restore(operator: Operator) -> None:
    tenant, settings = random_tenant(), operator.settings
    graph = f"platform lineage graph --tenant {tenant}"
    operator.sh("platform db upgrade")
    key = use_every_system(settings, tenant)
    before, graph_before = rows_of(operator.databases), operator.sh(graph)
    assert filled(before) >= FILLED
    assert "mart.sales" in graph_before

    backup, restore = (
        operator.spelled(block.text)
        .replace("platform platform_dagster", " ".join(operator.names))
        .replace("--tenant ID", f"--tenant {tenant}")
        for block in read_blocks(ROOT / "docs" / "operations.md", "operations.md")
        if "backup.sql" in block.text
    )
    operator.sh(backup)
    operator.sh("; ".join(f"mysql -e 'DROP DATABASE {name}'" for name in operator.names))
    shutil.rmtree(settings.home)
    clear_neo4j(settings, tenant)
    operator.sh(restore)
    # building the graph again is an event of its own
    rebuilt = set() if settings.graph_url == "embedded" else {"lineage_rebuild"}
    assert changed(before, rows_of(operator.databases)) == rebuilt
    assert operator.sh(graph) == graph_before
    assert_secrets_open(settings, key)
    clear_neo4j(settings, tenant)


def test_a_home_that_was_backed_up_and_lost_is_as_before_after_its_restore(tmp_path: Path) -> None:
    """By the commands of docs/operations.md, in the folder of the platform, and without PLATFORM_HOME."""
    home = tmp_path / ".platform"
    settings, graph = Settings(home=home), ("lineage", "graph", "--tenant", "7")
    run("db", "upgrade", home=home)
    key = use_every_system(settings, tenant=7)
    files = [path.relative_to(home) for path in home.rglob("*.db")]
    databases = [URL.create("sqlite", database=str(home / file)) for file in files]
    before, graph_before = rows_of(databases), run(*graph, home=home).stdout
    assert filled(before) >= FILLED | {"graph_node", "graph_edge"}
    assert "mart.sales" in graph_before
    blocks = read_blocks(ROOT / "docs" / "operations.md", "operations.md")
    backup, restore = (block.text for block in blocks if "backup.tar.gz" in block.text)
    variables = {name: value for name, value in os.environ.items() if name != "PLATFORM_HOME"}
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["bash", "-ec", backup], cwd=tmp_path, env=variables, check=True)
    shutil.rmtree(home)
    assert "no platform in" in run("tenants", "list", home=home).stderr
    subprocess.run(["bash", "-ec", restore], cwd=tmp_path, env=variables, check=True)
    assert "up to date" in run("db", "upgrade", home=home).stdout
    assert changed(before, rows_of(databases)) == set()
    assert run(*graph, home=home).stdout == graph_before
    assert_secrets_open(settings, key)


def use_every_system(settings: Settings, tenant: int) -> str:
    """What sources, operators and runs leave behind: each system's own code writes it. Returns a key of the tenant."""
    with opened_dagster(settings) as instance:
        instance.add_dynamic_partitions("days", [DAY])
        instance.report_runless_asset_event(AssetMaterialization("orders", partition=DAY))
        instance.report_run_failed(instance.create_run_for_job(nothing_much, tags={"day": DAY}))
    engine = open_engine(settings.database_url)
    graph = open_graph(settings, engine, timeouts=UNHURRIED)
    source = Tenant(tenant, f"t{tenant}", "Somebody")
    add_tenant(engine, source)
    post_events(engine, graph, source)
    load_registry(engine, read_registry(read_preset("crossref"), "crossref"), now=datetime.now(UTC))
    drain(engine, paged(), MemorySource(paged().pagination, items_of(15)))
    execute_a_model(engine, settings.home)
    drive(engine, start_chain(engine, make_chain(engine, node_types())), Script())
    graph.close()
    key = issue_key(engine, "spark", ["lineage:write"], source_type=SourceType.COMPUTE, tenant_id=tenant)
    engine.dispose()
    return key


def post_events(engine: Engine, graph: Graph, tenant: Tenant) -> None:
    """Without the API: what it would do with the events of docs/examples."""
    committer = open_committer(engine, graph)
    source = Principal("key", "spark", frozenset(), SourceType.COMPUTE, tenant)
    events = json.loads((EXAMPLES / "lineage.json").read_text())
    committer.commit([Intake(KnownTenants(engine)).prepare(source, event).prepared for event in events])
    committer.flush()
    committer.close()


def execute_a_model(engine: Engine, home: Path) -> None:
    """The tables of a batch arrive, its model is executed, and a subscriber is told."""
    file = EXAMPLES / "models.yaml"
    catalog.save(engine, read_models(file.read_bytes(), file.name), disable_orphaned_subscriptions)
    catalog.publish(engine, "MODEL-01")
    environment = ExecutionEnvironment(
        engine, Sources(engine, {}), PATIENCE_S, partial(notify_subscribers, zone=SHANGHAI)
    )
    with receiving() as receiver, sending(engine, home) as sender:
        subscribe(engine, home, receiver.url(), secret=SECRET)
        for table in ("DW_FACT_ORDER_D", "DW_DIM_SHOP_D"):
            record_arrival(engine, Arrival(table, OP_TIME))
        [task] = logged_tasks(engine, "MODEL-01", OP_TIME)
        run_for_work(environment, "MODEL-01", OP_TIME, task.work_id, task.run_id)
        sender.send_due()
        assert len(receiver.received) == 1


@contextmanager
def opened_dagster(settings: Settings) -> Iterator[DagsterInstance]:
    """As after a start of the platform, which writes the instance's configuration into the home."""
    dagster_instance.prepare(settings)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in dagster_instance.environment(settings).items():
            environment.setenv(name, value)
        with DagsterInstance.get() as instance:
            yield instance


def rows_of(databases: Iterable[URL]) -> Found:
    found: Found = {}
    for url in databases:
        engine = open_engine(url)
        found |= {(str(url.database), name): rows for name, rows in rows_of_every_table(engine).items()}
        engine.dispose()
    return found


def filled(found: Found) -> set[str]:
    return {name for (_, name), rows in found.items() if rows}


def changed(before: Found, after: Found) -> set[str]:
    """The tables that are not as they were, or not there."""
    return {place[1] for place in before.keys() | after.keys() if before.get(place) != after.get(place)}


def assert_secrets_open(settings: Settings, key: str) -> None:
    """What no comparison of rows says: the key of the home fits them, and Dagster opens its own."""
    engine = open_engine(settings.database_url)
    assert verify_key(engine, key).name == "spark"
    with engine.connect() as connection:
        stored = connection.scalars(select(metrics_webhook_subscription.c.secret)).one()
    assert reveal_secret(stored, Encryption(settings.home)).value == "Bearer s3cr3t"
    engine.dispose()
    with opened_dagster(settings) as instance:
        assert instance.get_dynamic_partitions("days") == [DAY]
        assert instance.get_materialized_partitions(AssetKey("orders")) == {DAY}
        [run] = instance.get_runs()
        assert run.is_failure


def clear_neo4j(settings: Settings, tenant: int) -> None:
    if settings.graph_url != "embedded":
        graph = Neo4jGraph(settings.graph_url, timeouts=UNHURRIED)
        graph.for_tenant(tenant).clear()
        graph.close()

"""Dump, drop, restore, by the commands of docs/operations.md: afterwards everything is as before."""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from platform_defs.access.keys import verify_key
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.store.engine import open_engine
from tests.conftest import dropped_databases, server_url
from tests.graph.conftest import UNHURRIED, random_tenant
from tests.needs import ROOT, require
from tests.pages import read_blocks
from tests.test_cli import run

SERVERS = (
    pytest.param("mysql", marks=pytest.mark.needs("mysql", "mysqldump", "neo4j", "time")),
    pytest.param("mariadb", marks=pytest.mark.needs("mariadb", "mariadb-dump", "time")),
)
MODELS, CHAINS = (ROOT / "docs" / "examples" / name for name in ("models.yaml", "chains.yaml"))
# a run of Dagster's own, and what one finds of it later
WRITE = """
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    instance.add_dynamic_partitions("days", ["2026-11-17"])
"""
READ = """
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    print(instance.get_dynamic_partitions("days"))
"""
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
    names: list[str]

    def spelled(self, text: str) -> str:
        """The page has the commands for MySQL, and says in words what is different on MariaDB."""
        return text if "PLATFORM_GRAPH_URL" in self.variables else text.replace(" --set-gtid-purged=OFF", "")

    def sh(self, script: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.variables | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(params=SERVERS)
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operator]:
    url = server_url(request.param).set(database=f"platform_test_{uuid.uuid4().hex[:12]}")
    names = [str(url.database), f"{url.database}_dagster"]
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
    variables = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PLATFORM_HOME": str(tmp_path / "home"),
        "PLATFORM_DB_URL": url.render_as_string(hide_password=False),
    }
    if request.param == "mysql":
        variables["PLATFORM_GRAPH_URL"] = require("neo4j")
    yield Operator(tmp_path, {**os.environ, **variables}, names)
    dropped_databases(request.param, names)


def test_servers_that_were_dumped_and_lost_are_as_before_after_the_restore(operator: Operator) -> None:
    tenant = random_tenant()
    prepare = "from platform_defs import dagster_instance; from platform_defs.settings import Settings;"
    operator.sh(f"""platform db upgrade
        platform tenants add {tenant} t{tenant} Somebody
        platform keys issue spark --scopes lineage:write --source-type compute --tenant {tenant}
        platform models load {MODELS}
        platform registry load preset:crossref
        mkdir -p "$PLATFORM_HOME"
        echo 'what secrets are encrypted with' > "$PLATFORM_HOME/webhook.key"
        python -c '{prepare} dagster_instance.prepare(Settings.load())'""")
    dagster = operator.sh(f"python -c '{prepare} print(dagster_instance.environment(Settings.load()))'")
    in_dagster = {str(name): str(value) for name, value in json.loads(dagster.replace("'", '"')).items()}
    operator.sh(f"python -c '{WRITE}'", **in_dagster)
    post_events(operator.variables["PLATFORM_DB_URL"], operator.variables.get("PLATFORM_GRAPH_URL"), tenant)
    looks = f"""platform tenants list; platform keys list --json; platform models list --json
        platform registry show crossref --json; platform lineage graph --tenant {tenant}
        cat "$PLATFORM_HOME/webhook.key" """
    before = operator.sh(looks) + operator.sh(f"python -c '{READ}'", **in_dagster)
    assert "mart.sales" in before
    assert "2026-11-17" in before

    backup, restore = (
        operator.spelled(block.text)
        .replace("platform platform_dagster", " ".join(operator.names))
        .replace("--tenant ID", f"--tenant {tenant}")
        for block in read_blocks(ROOT / "docs" / "operations.md", "operations.md")
        if "backup.sql" in block.text
    )
    operator.sh(backup)
    operator.sh("; ".join(f"mysql -e 'DROP DATABASE {name}'" for name in operator.names))
    shutil.rmtree(operator.variables["PLATFORM_HOME"])
    if graph := operator.variables.get("PLATFORM_GRAPH_URL"):
        opened = Neo4jGraph(graph, timeouts=UNHURRIED)
        opened.for_tenant(tenant).clear()
        opened.close()
    operator.sh(restore)
    operator.sh(f"python -c '{prepare} dagster_instance.prepare(Settings.load())'")
    after = operator.sh(looks) + operator.sh(f"python -c '{READ}'", **in_dagster)
    assert after == before
    if graph:
        opened = Neo4jGraph(graph, timeouts=UNHURRIED)
        opened.for_tenant(tenant).clear()
        opened.close()


def test_a_home_that_was_backed_up_and_lost_is_as_before_after_its_restore(tmp_path: Path) -> None:
    """By the commands of docs/operations.md."""
    home = tmp_path / "home"
    run("db", "upgrade", home=home)
    run("tenants", "add", "7", "t7", "Somebody", home=home)
    key = run("keys", "issue", "spark", "--scopes", "lineage:write", "--tenant", "7", home=home).stdout.strip()
    run("registry", "load", "preset:crossref", home=home)
    run("models", "load", str(MODELS), home=home)
    run("chains", "load", str(CHAINS), home=home)
    post_events(f"sqlite:///{home}/platform.db", None, tenant=7)
    (home / "webhook.key").write_text("a key that secrets are encrypted with")
    looks = [
        *(("tenants", "list"), ("keys", "list", "--json"), ("registry", "show", "crossref", "--json")),
        *(("models", "list", "--json"), ("chains", "list", "--json"), ("lineage", "graph", "--tenant", "7")),
    ]
    before = [run(*look, home=home).stdout for look in looks]
    for printed, expected in zip(
        before, ("Somebody", "spark", "crossref", "MODEL-01", "nightly", "mart.sales"), strict=True
    ):
        assert expected in printed
    page = (ROOT / "docs" / "operations.md").read_text()
    backup, restore = re.findall(r"^(?:tar|mkdir).*backup\.tar\.gz.*$", page, re.MULTILINE)
    variables = os.environ | {"PLATFORM_HOME": str(home)}
    subprocess.run(["bash", "-ec", backup], cwd=tmp_path, env=variables, check=True)
    shutil.rmtree(home)
    assert "no platform in" in run("tenants", "list", home=home).stderr
    subprocess.run(["bash", "-ec", restore], cwd=tmp_path, env=variables, check=True)
    assert "up to date" in run("db", "upgrade", home=home).stdout
    assert [run(*look, home=home).stdout for look in looks] == before
    engine = open_engine(f"sqlite:///{home}/platform.db")
    assert verify_key(engine, key).name == "spark"
    assert (home / "webhook.key").read_text() == "a key that secrets are encrypted with"
    engine.dispose()


def post_events(database: str, graph_url: str | None, tenant: int) -> None:
    """Without the API: what it would do with the events of docs/examples."""
    from platform_defs.access.principal import Principal, SourceType
    from platform_defs.access.tenants import Tenant
    from platform_defs.graph.embedded import EmbeddedGraph
    from platform_defs.lineage.intake.intake import Intake
    from platform_defs.lineage.intake.known_tenants import KnownTenants
    from platform_defs.lineage.sink.opening import open_committer

    engine = open_engine(database)
    graph = Neo4jGraph(graph_url, timeouts=UNHURRIED) if graph_url else EmbeddedGraph.on(engine)
    committer = open_committer(engine, graph)
    source = Principal("key", "spark", frozenset(), SourceType.COMPUTE, Tenant(tenant, f"t{tenant}", "Somebody"))
    events = json.loads((ROOT / "docs" / "examples" / "lineage.json").read_text())
    committer.commit([Intake(KnownTenants(engine)).prepare(source, event).prepared for event in events])
    committer.flush()
    committer.close()
    graph.close()
    engine.dispose()

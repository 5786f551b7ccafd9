"""Fixtures over the real stores, and the rule that what cannot run here is listed, never silently skipped."""

import os
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, String, TextClause, create_engine, exists, literal, select, text, union_all
from sqlalchemy.engine import URL, make_url

from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables import metadata
from tests.commands.command_line import run_platform as run_platform
from tests.needs import Absent, find, require, servers_are_from_packages

NOT_RUN = pytest.StashKey[dict[str, int]]()
SKIPPED = pytest.StashKey[list[str]]()
END_TO_END = Path(__file__).parent / "e2e"
# End-to-end files that start platforms of their own, the longest first.
OWN_PLATFORMS = (
    "test_arrivals_campaign.py",
    "test_docs.py",
    "test_lineage.py",
    "test_chains_lives.py",
    "test_ingest_ui.py",
    "test_demo.py",
    "test_dbt.py",
)
SHARED_PLATFORMS = ("embedded", "servers")
# MariaDB has the driver and nearly the dialect of MySQL: what could differ is tested in these folders.
SQL_FOLDERS = ("store", "graph", "work", "rate_gate", "models", "upgrade", "merge")
# What `make services` gets everywhere, or says that it could not; and what it gets where it starts the servers from
# packages. The programs that dump MySQL and MariaDB are not among them: no package that it installs has MySQL's.
MUST_RUN_IN_CI = ("mysql", "neo4j", "dbt", "chromium")
MUST_RUN_WITH_PACKAGES = ("server programs",)

needs = pytest.mark.needs
STORES = (
    pytest.param("sqlite"),
    pytest.param("mysql", marks=needs("mysql")),
    pytest.param("mariadb", marks=needs("mariadb")),
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): deselected where one of these is absent, and listed at the end")
    # a developer's own settings must not decide what a test sees
    for name in [name for name in os.environ if name.startswith("PLATFORM_") and not name.startswith("PLATFORM_TEST_")]:
        del os.environ[name]
    # nor must the platform that runs in the tree: definitions are built from its models
    os.environ["PLATFORM_HOME"] = str(Path(tempfile.gettempdir(), f"no-platform-{uuid.uuid4().hex}"))
    # A busy machine is not a fault of the code. CI draws the same examples each time: whether a change lands must not
    # depend on luck. Everybody else draws new ones.
    settings.register_profile(
        "platform",
        settings(),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=bool(os.environ.get("CI")),
    )
    settings.load_profile("platform")
    config.stash[NOT_RUN] = defaultdict(int)
    config.stash[SKIPPED] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, dropped = [], []
    for item in items:
        names = sorted({name for mark in item.iter_markers("needs") for name in mark.args})
        if "mariadb" in names and not _is_about_sql(item):
            names.append("every store")
        absent = [found.reason for name in names if isinstance(found := find(name), Absent)]
        for reason in absent:
            config.stash[NOT_RUN][reason] += 1
        (dropped if absent else kept).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    items[:] = sorted(kept, key=_turn)


def _is_about_sql(item: pytest.Item) -> bool:
    """Whether a test is about statements of its own; what is built on those behaves on MariaDB as on MySQL."""
    return item.path.parent.name in SQL_FOLDERS or item.path.parent == END_TO_END.parent


def _turn(item: pytest.Item) -> int:
    """What is long first: short files at the end let all workers end together."""
    if END_TO_END not in item.path.parents:
        return (2 if item.path.parent == END_TO_END.parent else 3) + len(OWN_PLATFORMS)
    if item.path.name in OWN_PLATFORMS:
        return 1 + OWN_PLATFORMS.index(item.path.name)
    return 0 if scope_of(item.nodeid) in SHARED_PLATFORMS else 1 + len(OWN_PLATFORMS)


def scope_of(nodeid: str) -> str:
    """Tests of one scope are executed by one worker: those of a shared platform, otherwise those of a file."""
    file, _, test = nodeid.partition("::")
    if END_TO_END.name not in Path(file).parts:
        return file
    if Path(file).name == OWN_PLATFORMS[0]:
        return nodeid  # a platform for each test
    if Path(file).name in OWN_PLATFORMS:
        return file
    return next((name for name in SHARED_PLATFORMS if f"[{name}" in test), "started and ended")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of the workers of `make test` two drive a shared platform each, and the others take the rest."""
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByScope(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker could not run, told to the process that prints the summary; every worker collects everything."""
    _CONFIG[0].stash[NOT_RUN].update(getattr(node, "workeroutput", {}).get("not_run", {}))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _CONFIG[0].stash[SKIPPED].append(report.nodeid)


def pytest_sessionstart(session: pytest.Session) -> None:
    _CONFIG[:] = [session.config]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["not_run"] = dict(session.config.stash[NOT_RUN])
    if os.environ.get("CI") and exitstatus == pytest.ExitCode.OK and _ci_complaints(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[NOT_RUN]:
        terminalreporter.section("not run here")
        for reason, count in sorted(config.stash[NOT_RUN].items()):
            terminalreporter.line(f"{count} tests: {reason}")
    if os.environ.get("CI"):
        for complaint in _ci_complaints(config):
            terminalreporter.line(f"CI: {complaint}", red=True)


def _ci_complaints(config: pytest.Config) -> list[str]:
    needed = MUST_RUN_IN_CI + (MUST_RUN_WITH_PACKAGES if servers_are_from_packages() else ())
    missing = [f"{name} tests were not run" for name in needed if isinstance(find(name), Absent)]
    return missing + [f"skipped inside a collected test: {node}" for node in config.stash[SKIPPED]]


_CONFIG: list[pytest.Config] = []


def server_url(store: str) -> URL:
    """The server's URL without a database, by the driver that the platform uses."""
    url = make_url(require(store))
    return url.set(drivername="mysql+mysqlconnector", database=None).update_query_dict({"ssl_disabled": "true"})


def new_database(store: str, folder: Path) -> tuple[URL, list[str]]:
    name = f"platform_test_{uuid.uuid4().hex[:12]}"
    if store == "sqlite":
        return URL.create("sqlite", database=str(folder / f"{name}.db")), []
    collation = "utf8mb4_0900_bin" if store == "mysql" else "utf8mb4_nopad_bin"
    _execute_on_server(store, f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE {collation}")
    return server_url(store).set(database=name), [name, f"{name}_dagster"]


def dropped_databases(store: str, names: list[str]) -> None:
    for name in names:
        _execute_on_server(store, f"DROP DATABASE IF EXISTS {name}")


def _execute_on_server(store: str, statement: str) -> None:
    engine = create_engine(server_url(store), connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[URL]:
    """An empty database of its own on the store that indirect parametrisation names (default SQLite)."""
    store = getattr(request, "param", "sqlite")
    url, names = new_database(store, tmp_path)
    yield url
    dropped_databases(store, names)


class SharedDatabases(dict[str, Engine]):
    """A migrated database per store and session, made when it is first asked for: forty tables cost a second on MySQL.

    Whoever asks for one by its name may leave rows in it, of a tenant of its own for example. `empty` takes them away,
    so that no test depends on which files its worker executed before.
    """

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        super().__init__()
        self._tmp_path_factory = tmp_path_factory
        self._created: list[tuple[str, list[str]]] = []
        self._used: set[str] = set()

    def __missing__(self, store: str) -> Engine:
        url, names = new_database(store, self._tmp_path_factory.mktemp("store"))
        self._created.append((store, names))
        engine = open_engine(url)
        migrate.upgrade(engine)
        self[store] = engine
        return engine

    def __getitem__(self, store: str) -> Engine:
        self._used.add(store)
        return super().__getitem__(store)

    def empty(self, store: str) -> Engine:
        is_used = store in self._used
        engine = super().__getitem__(store)
        if is_used:
            _empty(engine)
            self._used.remove(store)
        return engine

    def drop(self) -> None:
        for engine in self.values():
            engine.dispose()
        for store, names in self._created:
            dropped_databases(store, names)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDatabases]:
    shared = SharedDatabases(tmp_path_factory)
    yield shared
    shared.drop()


@pytest.fixture(params=STORES)
def engine(request: pytest.FixtureRequest, migrated: SharedDatabases) -> Iterator[Engine]:
    """A migrated, empty database on each store in turn."""
    engine = migrated.empty(request.param)
    yield engine
    _empty(engine)


@cache
def _filled_tables(engine: Engine) -> TextClause:
    """As text, since an expression over fifty tables is slow to put together."""
    filled = union_all(
        *(
            select(literal(table.name, String)).where(exists(select(1).select_from(table)))
            for table in metadata.sorted_tables
        )
    )
    return text(str(filled.compile(engine, compile_kwargs={"literal_binds": True})))


def _empty(engine: Engine) -> None:
    """Only what has rows is emptied: a test fills two tables of fifty."""
    with engine.begin() as connection:
        names = set(connection.scalars(_filled_tables(engine)))
        for table in reversed(metadata.sorted_tables):
            if table.name in names:
                connection.execute(table.delete())


@pytest.fixture(autouse=True)
def _environment_is_left_as_it_was() -> Iterator[None]:
    """What a test leaves in the environment decides what the processes of later tests do, on the same worker alone."""
    before = _environment()
    yield
    assert _environment() == before


# Where pytest says which test is executed, and in which of its steps; and where Dagster names itself to Snowflake, from
# the first run on that a process executes.
SET_BY_OTHERS = ("PYTEST_CURRENT_TEST", "SF_PARTNER")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SET_BY_OTHERS}

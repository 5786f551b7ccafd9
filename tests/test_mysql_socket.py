"""On the server's own machine the platform connects through the socket: with a password, and without TLS."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import URL

from platform_defs import dagster_instance
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from tests.conftest import dropped_databases, server_url
from tests.needs import require
from tests.test_cli import run

pytestmark = pytest.mark.needs("mysql", "mysql socket")


@pytest.fixture
def server() -> Iterator[Connection]:
    engine = create_engine(server_url("mysql"), connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def socket_url(server: Connection) -> Iterator[URL]:
    """As the README writes it, of a new user with a password, who may make two databases."""
    name = f"platform_test_{uuid.uuid4().hex[:12]}"
    databases = [name, f"{name}_dagster"]
    server.execute(text(f"CREATE USER {name} IDENTIFIED WITH caching_sha2_password BY 'a password'"))
    try:
        for database in databases:
            server.execute(text(f"GRANT ALL ON {database}.* TO {name}"))
        url = URL.create("mysql+mysqlconnector", name, "a password", database=name)
        yield url.update_query_dict({"unix_socket": require("mysql socket")})
    finally:
        server.execute(text(f"DROP USER {name}"))
        dropped_databases("mysql", databases)


def forget_passwords(server: Connection) -> None:
    """As after a restart of the server: of a user whom it does not remember it wants the password itself."""
    server.execute(text("FLUSH PRIVILEGES"))


def test_a_platform_on_the_socket_works_also_after_a_restart_of_the_server(
    server: Connection, socket_url: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"PLATFORM_HOME": str(tmp_path / "home"), "PLATFORM_DB_URL": socket_url.render_as_string(False)}
    forget_passwords(server)
    done = run("db", "upgrade", home=tmp_path / "home", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = Settings.load()
    forget_passwords(server)
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    forget_passwords(server)
    with DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("days", ["2026-11-17"])
        assert instance.get_dynamic_partitions("days") == ["2026-11-17"]


def test_the_socket_needs_no_encryption(server: Connection, socket_url: URL) -> None:
    server.execute(text(f"CREATE DATABASE {socket_url.database} COLLATE utf8mb4_0900_bin"))
    forget_passwords(server)
    engine = open_engine(socket_url)
    with engine.connect() as connection:
        assert connection.execute(text("SHOW STATUS LIKE 'Ssl_cipher'")).one().Value == ""
    engine.dispose()

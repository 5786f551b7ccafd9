"""What tests may need from outside, where to find it, and how its absence is reported instead of skipped over."""

import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

ROOT = Path(__file__).resolve().parent.parent
SERVERS = ROOT / ".services"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Absent:
    reason: str


def _server(name: str, default_port: int) -> str | Absent:
    """The URL of a server that answers: named by the environment, or started by `make services`."""
    variable = f"PLATFORM_TEST_{name.upper()}_URL"
    recorded = SERVERS / name / "url"
    url = os.environ.get(variable) or (recorded.read_text().strip() if recorded.exists() else "")
    if not url:
        return Absent(f"no {name}: `make services` starts one, {variable} names one")
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or default_port), timeout=30):
            return url
    except OSError as error:
        return Absent(f"{name} at {parts.hostname}:{parts.port} does not answer ({error}): `make services`")


def _mysql_socket() -> str | Absent:
    """Where the server listens beside its port, if that is on this machine: a server in a container has its own."""
    if isinstance(url := find("mysql"), Absent):
        return url
    engine = create_engine(make_url(url).set(drivername="mysql+mysqlconnector", database=None))
    with engine.connect() as connection:
        found = str(connection.execute(text("SELECT @@socket")).scalar())
    engine.dispose()
    return found if Path(found).is_socket() else Absent(f"MySQL's socket {found} is not on this machine")


def _chromium() -> str | Absent:
    found = os.environ.get("PLATFORM_TEST_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    return found or Absent("no Chromium on the PATH; PLATFORM_TEST_CHROMIUM names one")


def _dump_program(name: str) -> str | Absent:
    """MySQL's own, or MariaDB's: neither can dump a server of the other so that it can be restored."""
    for found in filter(None, map(shutil.which, (name, "mysqldump"))):
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        if ("MariaDB" in told) == (name == "mariadb-dump"):
            return found
    return Absent(f"no {name} on the PATH")


def _services() -> Path:
    return Path(os.environ.get("SERVICES_DIR", SERVERS))


def servers_are_from_packages() -> bool:
    """Whether `make services` fetched programs: not with Docker, nor where somebody else's servers are used."""
    named = any(f"PLATFORM_TEST_{name}_URL" in os.environ for name in ("MYSQL", "NEO4J"))
    return not named and not (_services() / "docker").exists()


def _server_programs() -> str | Absent:
    """The folder of programs with which a test can start servers of its own."""
    folder = _services()
    mysql = (folder / "mysql" / "root").is_dir() or shutil.which("mysqld")
    neo4j = (folder / "neo4j" / "lib").is_dir() or shutil.which("neo4j")
    return str(folder) if mysql and neo4j else Absent("no programs of MySQL and Neo4j; `make services` downloads them")


def _dbt() -> str | Absent:
    """The folder of programs that has dbt-ol."""
    folder = Path(os.environ.get("PLATFORM_TEST_DBT", SERVERS / "dbt" / "venv" / "bin"))
    found = (folder / "dbt-ol").exists()
    return (
        str(folder) if found else Absent("no dbt-ol; `make services` installs it, PLATFORM_TEST_DBT names its folder")
    )


def _data() -> str | Absent:
    folder = Path(os.environ.get("PLATFORM_TEST_DATA", ROOT.parent / "shared" / "data"))
    return str(folder) if folder.is_dir() else Absent("no data set; PLATFORM_TEST_DATA names its folder")


def _every_store() -> str | Absent:
    asked = os.environ.get("PLATFORM_TEST_EVERY_STORE")
    return asked or Absent("MariaDB is tested where its SQL may differ; PLATFORM_TEST_EVERY_STORE=1 runs all")


def _time() -> str | Absent:
    """A newcomer's run takes minutes, not a coffee break: what is long runs in CI and on request."""
    asked = os.environ.get("CI") or os.environ.get("PLATFORM_TEST_LONG")
    return asked or Absent("they take half a minute each; PLATFORM_TEST_LONG=1 runs them, as CI does")


@cache
def find(name: str) -> str | Absent:
    """Where the named need is, or why it is not here."""
    match name:
        case "mysql" | "mariadb":
            return _server(name, 3306)
        case "mysql socket":
            return _mysql_socket()
        case "neo4j":
            return _server(name, 7687)
        case "postgres":
            return _server(name, 5432)
        case "every store":
            return _every_store()
        case "chromium":
            return _chromium()
        case "mysqldump" | "mariadb-dump":
            return _dump_program(name)
        case "server programs":
            return _server_programs()
        case "dbt":
            return _dbt()
        case "data":
            return _data()
        case "time":
            return _time()
    raise ValueError(f"unknown need {name!r}")


def require(name: str) -> str:
    found = find(name)
    if isinstance(found, Absent):
        raise RuntimeError(found.reason)  # a test that asks without @needs is a mistake, never a skip
    return found

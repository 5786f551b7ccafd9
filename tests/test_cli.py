"""The command line as its user meets it: help everywhere, one line for an error, exit codes that programs trust."""

import errno
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import click
import mysql.connector
import pytest
from mysql.connector.errors import get_mysql_exception
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from platform_defs.cli import COMMANDS, cli
from platform_defs.connections import explain
from platform_defs.errors import SettingsError
from platform_defs.home import make_home
from platform_defs.store.engine import open_engine
from platform_defs.supervisor.ports import find_free_port
from tests.conftest import dropped_databases, server_url
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = Path(sys.executable).with_name("platform")


def run(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PLATFORM_HOME": str(home)} | environment
    return subprocess.run([PLATFORM, *arguments], env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str, tmp_path: Path) -> None:
    done = run(command, "--help", home=tmp_path)
    assert done.returncode == 0
    assert "Usage: platform" in done.stdout
    assert not list(tmp_path.iterdir()), "asking for help must not create anything"


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, info_name=" ".join(path))
    yield " ".join(path), command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name) or pytest.fail(name), (*path, name))


def test_no_sentence_of_the_help_is_cut_and_every_option_has_one() -> None:
    found = list(commands(cli, ("platform",)))
    assert len(found) > 70
    for name, command, context in found:
        shown = command.get_help(context)
        assert [line for line in shown.splitlines()[1:] if line.endswith("...")] == [], name
        assert "9223372036854775807" not in shown, name
        options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
        assert [option.opts for option in options if not option.help] == [], name


def test_an_error_is_one_line_and_debug_shows_the_trace(tmp_path: Path) -> None:
    (tmp_path / "platform.db").touch()
    done = run("keys", "list", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("platform: ")
    assert "run `platform db upgrade`" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" in run("--debug", "keys", "list", home=tmp_path).stderr


INTERRUPTED = """
import sqlite3, click
from sqlalchemy import NullPool, create_engine
from platform_defs import cli

class Connection(sqlite3.Connection):
    def close(self):
        raise KeyboardInterrupt

@click.command()
def command():
    made = lambda: sqlite3.connect(":memory:", factory=Connection)
    with create_engine("sqlite://", creator=made, poolclass=NullPool).connect():
        pass

cli.cli = command
cli.main()
"""


def test_ctrl_c_shows_no_trace_whatever_a_command_does_at_that_moment() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_a_bad_setting_is_one_line_that_names_the_variable(tmp_path: Path) -> None:
    done = run("db", "status", home=tmp_path, PLATFORM_ZONE="nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "PLATFORM_ZONE" in done.stderr


@pytest.mark.parametrize("command", [("db", "upgrade"), ("db", "status"), ("keys", "list")])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_an_unreachable_database_is_one_line_that_says_what_to_do(
    tmp_path: Path, command: tuple[str, ...], host: str
) -> None:
    done = run(*command, home=tmp_path, PLATFORM_DB_URL=f"mysql://nobody@{host}/platform")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert host.partition(":")[0] in done.stderr
    assert done.stderr.endswith("mend PLATFORM_DB_URL\n")
    assert "Traceback" not in done.stderr


@pytest.mark.needs("mysql")
def test_a_user_whom_the_server_refuses_is_one_line_that_says_what_to_mend(tmp_path: Path) -> None:
    wrong = server_url("mysql").set(username="nobody", password="wrong", database="platform")
    url = wrong.difference_update_query(["ssl_disabled"]).render_as_string(hide_password=False)
    for command in [("db", "upgrade"), ("db", "status"), ("keys", "list")]:
        done = run(*command, home=tmp_path, PLATFORM_DB_URL=url)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert "Access denied for user 'nobody'" in done.stderr
        assert done.stderr.endswith("; mend PLATFORM_DB_URL\n")
        assert "wrong" not in done.stderr


@pytest.mark.needs("mysql")
@pytest.mark.parametrize(
    ("account", "said"), [("ACCOUNT LOCK", "Account is locked."), ("PASSWORD EXPIRE", "Your password has expired.")]
)
def test_an_account_that_may_not_log_in_is_told_what_to_mend(tmp_path: Path, account: str, said: str) -> None:
    server, name = server_url("mysql"), f"user_{uuid.uuid4().hex[:12]}"
    engine = create_engine(server, connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE USER {name} {account}"))
        try:
            url = server.set(username=name, database="platform").render_as_string()
            done = run("keys", "list", home=tmp_path, PLATFORM_DB_URL=url)
        finally:
            connection.execute(text(f"DROP USER {name}"))
    engine.dispose()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert said in done.stderr
    assert done.stderr.endswith("; mend PLATFORM_DB_URL\n")


@pytest.mark.parametrize(
    ("number", "statement", "advice"),
    [
        (1130, None, "mend PLATFORM_DB_URL"),
        (2005, None, "mend PLATFORM_DB_URL"),
        (4151, None, "mend PLATFORM_DB_URL"),  # a locked account, as MariaDB says it
        (1049, None, "run `platform db upgrade`, or mend PLATFORM_DB_URL"),
        (1040, None, ""),  # too many connections
        (1142, "SELECT 1", ""),  # no right to a table
    ],
)
def test_only_who_is_not_let_in_is_told_to_mend_the_url(number: int, statement: str | None, advice: str) -> None:
    said = get_mysql_exception(number, "as the server says it", "HY000")
    error = DBAPIError.instance(statement, None, said, mysql.connector.Error)
    assert explain(error) == f"{number} (HY000): as the server says it{advice and f'; {advice}'}"


@pytest.mark.needs("mysql")
def test_the_url_of_dagsters_own_database_is_named_when_that_one_is_wrong(tmp_path: Path) -> None:
    name = f"platform_test_{uuid.uuid4().hex[:12]}"
    url = server_url("mysql").set(database=name).render_as_string(hide_password=False)
    dagster = {"PLATFORM_DAGSTER_DB_URL": "mysql://nobody@127.0.0.1:1/dagster"}
    ports = [str(find_free_port("127.0.0.1")) for _ in range(2)]
    try:
        done = run("up", "--api-port", ports[0], "--ui-port", ports[1], home=tmp_path, PLATFORM_DB_URL=url, **dagster)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith("platform: PLATFORM_DAGSTER_DB_URL: the database server does not answer: ")
    finally:
        dropped_databases("mysql", [name])


def test_a_disk_that_is_nearly_full_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^PLATFORM_HOME: the disk of .* MiB left, and a start needs"):
        make_home(tmp_path / "home", needed_mib=2**40)
    make_home(tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []


def test_a_disk_that_is_full_is_one_line_that_says_which(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/full.db")
    with engine.connect() as connection:
        connection.execute(text("PRAGMA max_page_count = 1"))
        with pytest.raises(OperationalError) as full:
            connection.execute(text("CREATE TABLE a (b)"))
    engine.dispose()
    assert explain(full.value) == "database or disk is full; free some space on the disk of PLATFORM_HOME"
    enough = OSError(errno.ENOSPC, "No space left on device")
    assert explain(enough).endswith("free some space on the disk of PLATFORM_HOME")


def run_with_few_rights(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """As a user who may not write where others may: root is one who has given up its right to write everywhere."""
    lost = "-dac_override,-dac_read_search,-fowner"
    weaken = ["setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}"] if os.getuid() == 0 else []
    return subprocess.run(
        [*weaken, PLATFORM, *arguments],
        env=os.environ | {"PLATFORM_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_home_of_somebody_else_is_one_line_that_names_the_variable_and_the_owner(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run("db", "upgrade", home=home)
    if os.getuid() == 0:
        for path in (home, *home.iterdir()):
            os.chown(path, 65534, -1)
    folder, file = home, home / "platform.db"
    for place, other in ((folder, file), (file, folder)):
        place.chmod(0o555)
        other.chmod(0o777)
        done = run_with_few_rights("keys", "list", home=home)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert done.stderr.startswith(f"platform: PLATFORM_HOME: {place} belongs to {place.owner()}, and you may not")
        assert "run the command as its owner, or set PLATFORM_HOME to a platform of your own" in done.stderr
    folder.chmod(0o555)
    done = run_with_few_rights("up", home=home)
    assert done.stderr.startswith(f"platform: PLATFORM_HOME: {home} cannot be written (Permission denied); set it to a")
    folder.chmod(0o700)


@pytest.mark.parametrize("command", [("keys", "list"), ("db", "status"), ("ingest", "run", "a", "b"), ("selfcheck",)])
def test_a_command_that_only_looks_creates_no_home_and_says_where_it_looked(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    home = tmp_path / "elsewhere"
    done = run(*command, home=home)
    assert done.returncode == 1
    assert done.stderr == f"platform: no platform in {home}; set PLATFORM_HOME or run `platform up`\n"
    file = tmp_path / "other.db"
    done = run(*command, home=home, PLATFORM_DB_URL=f"sqlite:///{file}")
    assert done.stderr.startswith(f"platform: database {file} does not exist: run `platform db upgrade`")
    assert list(tmp_path.iterdir()) == []


def test_a_home_whose_database_is_on_a_server_says_which_variables_are_missing(tmp_path: Path) -> None:
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text(
        "storage: {mysql: {mysql_url: {env: PLATFORM_DAGSTER_DB_URL}}}\n"
    )
    done = run("demo", "remove", home=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"the platform of {tmp_path} has its database on a server: set PLATFORM_DB_URL" in done.stderr


@pytest.mark.parametrize("command", [("db", "upgrade"), ("up", "--api-port", "8123", "--ui-port", "8124")])
def test_a_home_that_cannot_be_written_is_one_line_that_names_the_variable(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file" / "home", Path("/proc/platform")):
        done = run(*command, home=home)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert done.stderr.startswith(f"platform: PLATFORM_HOME: {home} cannot be written (")
        assert "set it to a folder that you may write to" in done.stderr


def test_a_variable_that_is_no_setting_is_a_warning_with_the_nearest_one(tmp_path: Path) -> None:
    done = run("db", "upgrade", home=tmp_path, PLATFORM_GRAPH_UR="bolt://x", PLATFORM_SOURCE_DW_URL="sqlite:///x")
    assert done.returncode == 0
    assert done.stderr == "platform: PLATFORM_GRAPH_UR is not a setting; did you mean PLATFORM_GRAPH_URL?\n"
    done = run("db", "status", home=tmp_path, PLATFORM_7X7="1")
    assert done.stderr == "platform: PLATFORM_7X7 is not a setting; the README lists all settings\n"


def test_a_database_that_had_to_be_created_is_named(tmp_path: Path) -> None:
    assert run("db", "upgrade", home=tmp_path).stdout.splitlines()[0] == f"created database {tmp_path}/platform.db"
    assert "created" not in run("db", "upgrade", home=tmp_path).stdout


@pytest.mark.needs("mysql")
def test_a_database_that_had_to_be_created_on_a_server_is_named(tmp_path: Path) -> None:
    name = f"platform_test_{uuid.uuid4().hex[:12]}"
    url = server_url("mysql").set(database=name).render_as_string(hide_password=False)
    try:
        assert run("db", "upgrade", home=tmp_path, PLATFORM_DB_URL=url, PLATFORM_GRAPH_URL="bolt://127.0.0.1:1").stderr
        # an attempt that failed must not have created it, because nobody would be told
        done = run("db", "upgrade", home=tmp_path, PLATFORM_DB_URL=url)
        assert done.stdout.splitlines()[0] == f"created database {name}", done.stderr
    finally:
        dropped_databases("mysql", [name])


@pytest.mark.parametrize("scheme", ["bolt", "neo4j"])
def test_an_unreachable_graph_is_one_whole_line_and_nothing_is_migrated(tmp_path: Path, scheme: str) -> None:
    done = run("db", "upgrade", home=tmp_path, PLATFORM_GRAPH_URL=f"{scheme}://127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith(f"platform: Neo4j at {scheme}://127.0.0.1:1 does not answer: ")
    assert done.stderr.endswith("; start it, or mend PLATFORM_GRAPH_URL\n")
    assert scheme == "neo4j" or "Connection refused" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("mysql")
def test_a_wrong_password_without_tls_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    server, name = server_url("mysql"), f"user_{uuid.uuid4().hex[:12]}"
    engine = create_engine(server, connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE USER {name} IDENTIFIED WITH caching_sha2_password BY 'right'"))
        try:
            without_tls = server.set(username=name, password="wrong", database="platform")
            done = run("db", "upgrade", home=tmp_path, PLATFORM_DB_URL=without_tls.render_as_string(False))
            assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
            assert f"the database server refuses {name}: " in done.stderr
            assert "The password is wrong, or the server has forgotten it since its restart: remove ssl_disabled" in (
                done.stderr
            )
            tls = without_tls.difference_update_query(["ssl_disabled"])
            done = run("db", "upgrade", home=tmp_path, PLATFORM_DB_URL=tls.render_as_string(False))
            assert f"refuses {name}: 1045 (28000): Access denied for user" in done.stderr
        finally:
            connection.execute(text(f"DROP USER {name}"))
    engine.dispose()


def test_from_nothing_to_a_key(tmp_path: Path) -> None:
    assert run("db", "upgrade", home=tmp_path).returncode == 0
    assert run("tenants", "add", "7", "acme", "Acme Inc.", home=tmp_path).returncode == 0
    issued = run("keys", "issue", "spark", "--scopes", "lineage:write", "--tenant", "7", home=tmp_path)
    assert issued.returncode == 0
    assert issued.stdout.strip().startswith("pk_")
    assert issued.stdout.count("\n") == 1
    assert issued.stdout.strip() not in run("keys", "list", home=tmp_path).stdout


def test_the_shell_completes_commands(tmp_path: Path) -> None:
    asked = {"_PLATFORM_COMPLETE": "bash_complete", "COMP_WORDS": "platform keys i", "COMP_CWORD": "2"}
    done = run(home=tmp_path, PLATFORM_7X7="1", **asked)
    assert (done.stdout, done.stderr) == ("plain,issue\n", ""), "a warning would stand in the line that is completed"
    assert "complete -o nosort" in run(home=tmp_path, _PLATFORM_COMPLETE="bash_source").stdout

"""The command line as its user meets it: help everywhere, one line for an error, exit codes that programs trust."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from platform_defs.cli import COMMANDS

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


def test_an_error_is_one_line_and_debug_shows_the_trace(tmp_path: Path) -> None:
    done = run("keys", "list", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("platform: ")
    assert "run `platform db upgrade`" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" in run("--debug", "keys", "list", home=tmp_path).stderr


def test_a_bad_setting_is_one_line_that_names_the_variable(tmp_path: Path) -> None:
    done = run("db", "status", home=tmp_path, PLATFORM_ZONE="nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "PLATFORM_ZONE" in done.stderr


def test_an_unreachable_database_is_one_line(tmp_path: Path) -> None:
    done = run("db", "status", home=tmp_path, PLATFORM_DB_URL="mysql://nobody@127.0.0.1:1/platform")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "Traceback" not in done.stderr


def test_from_nothing_to_a_key_and_a_selfcheck(tmp_path: Path) -> None:
    assert run("db", "upgrade", home=tmp_path).returncode == 0
    assert run("tenants", "add", "7", "acme", "Acme Inc.", home=tmp_path).returncode == 0
    issued = run("keys", "issue", "spark", "--scopes", "lineage:write", "--tenant", "7", home=tmp_path)
    assert issued.returncode == 0
    assert issued.stdout.strip().startswith("pk_")
    assert issued.stdout.count("\n") == 1
    assert issued.stdout.strip() not in run("keys", "list", home=tmp_path).stdout
    checked = run("selfcheck", home=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "selfcheck succeeded" in checked.stdout
    # as a platform leaves it that is up with settings of its own
    (tmp_path / "up.json").write_text("{}")
    instance = tmp_path / "dagster" / "dagster.yaml"
    instance.write_text(instance.read_text() + "# by another launcher\n")
    assert run("selfcheck", home=tmp_path).returncode == 0
    assert "# by another launcher" in instance.read_text()

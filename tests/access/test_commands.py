"""`platform keys` and `platform tenants`, as an operator types them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from platform_defs.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Exit code, stdout and stderr of a command on the given database."""

    def command(url: URL, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
        monkeypatch.setenv("PLATFORM_DB_URL", url.render_as_string(hide_password=False))
        monkeypatch.setattr(sys, "argv", ["platform", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out, written.err

    return command


def test_a_tenant_is_added_once_and_never_contradicted(engine: Engine, run: Run) -> None:
    add = ("tenants", "add", "7", "acme", "Acme")
    assert run(engine.url, *add) == (0, "tenant 7 added\n", "")
    assert run(engine.url, *add) == (0, "tenant 7 is already on record\n", "")
    code, out, err = run(engine.url, "tenants", "add", "8", "acme", "Acme")
    assert (code, out, err) == (1, "", "platform: tenantCode: 'acme' belongs to tenant 7\n")
    assert run(engine.url, "tenants", "list")[1].splitlines() == ["id  code  name", "7   acme  Acme"]
    assert json.loads(run(engine.url, "tenants", "list", "--json")[1]) == {"id": 7, "code": "acme", "name": "Acme"}


def test_a_key_is_printed_alone_listed_without_its_secret_and_revoked(engine: Engine, run: Run) -> None:
    run(engine.url, "tenants", "add", "7", "acme", "Acme")
    options = ("--scopes", "lineage:write,run:read", "--source-type", "compute", "--tenant", "7")
    code, key, err = run(engine.url, "keys", "issue", "spark", *options)
    assert (code, err, len(key.split())) == (0, "", 1)
    listed = run(engine.url, "keys", "list", "--json")[1]
    shown = json.loads(listed)
    assert shown["id"] == key.split("_")[1]
    assert (shown["scopes"], shown["sourceType"], shown["tenant"]) == ("lineage:write,run:read", "compute", 7)
    assert key.split("_")[2].strip() not in listed
    assert run(engine.url, "keys", "revoke", "spark") == (0, f"revoked: {shown['id']}\n", "")
    assert run(engine.url, "keys", "revoke", "spark") == (0, "already revoked\n", "")
    assert json.loads(run(engine.url, "keys", "list", "--json")[1])["revokedAt"] is not None


def test_keys_are_listed_in_words_under_headers(engine: Engine, run: Run) -> None:
    assert run(engine.url, "keys", "list") == (0, "", "no keys yet; `platform keys issue` issues one\n")
    run(engine.url, "keys", "issue", "spark", "--scopes", "run:read,chain:read")
    header, line = run(engine.url, "keys", "list")[1].splitlines()
    assert header.split() == ["id", "name", "state", "source", "tenant", "created", "scopes"]
    assert line.split()[1:5] == ["spark", "valid", "-", "-"]
    assert line.endswith("chain:read,run:read")
    run(engine.url, "keys", "revoke", "spark")
    assert line.split()[0] in (revoked := run(engine.url, "keys", "list")[1])
    assert "revoked 20" in revoked


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--source-type", "compute"), "no event of this key will be accepted"),
        ((), "this key can post Gravitino's events alone"),
        (("--source-type", "gravitino"), ""),
        (("--source-type", "compute", "--tenant", "7"), ""),
    ],
)
def test_what_a_key_cannot_do_is_said_when_it_is_issued(
    engine: Engine, run: Run, options: tuple[str, ...], warned: str
) -> None:
    run(engine.url, "tenants", "add", "7", "acme", "Acme")
    code, key, err = run(engine.url, "keys", "issue", "spark", "--scopes", "lineage:write", *options)
    assert (code, len(key.split()), err.count("\n")) == (0, 1, 1 if warned else 0)
    assert warned in err
    assert "--tenant" in err or not warned


def test_a_mistake_is_one_line_and_exit_code_1(engine: Engine, run: Run) -> None:
    for arguments, expected in (
        (("keys", "issue", "spark", "--scopes", "everything"), "unknown everything; known are lineage:write"),
        (("keys", "issue", "spark", "--scopes", "run:read", "--tenant", "9"), "tenant: 9 is not on record"),
        (("keys", "revoke", "nobody"), "no key has the id or name 'nobody'"),
    ):
        code, out, err = run(engine.url, *arguments)
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert expected in err


@pytest.mark.parametrize("arguments", ["keys list", "tenants list"])
def test_a_database_that_is_behind_is_refused(database_url: URL, run: Run, arguments: str) -> None:
    code, out, err = run(database_url, *arguments.split())
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "platform db upgrade" in err

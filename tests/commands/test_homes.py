"""Which platform am I talking to: a command that neither starts nor migrates one creates no home."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from platform_defs.api.http.server import DrainingServer
from platform_defs.cli import cli, main
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.webhooks.receiver import with_kpis

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
# They create a home, or need none: `db revision` writes a migration for the developer who asks for it.
OTHERS = {"up", "runner", "db upgrade", "db revision"}
# What commands are given that expect a file, or one of several options.
GIVEN = {
    "chains load": [str(EXAMPLES / "chains.yaml")],
    "models load": [str(EXAMPLES / "models.yaml")],
    "registry load": ["preset:crossref"],
    "registry diff": ["preset:crossref"],
    "ingest cancel": ["demo", "works", "--all", "--reason", "x"],
    "ingest execute": ["--once"],
    "ingest signal": ["demo", "works", "1", "--reason", "x"],
    "keys issue": ["x", "--scopes", "run:read"],
    "lineage dead-letters retry": ["--all"],
    "models run": ["x", "--from", "20260101", "--to", "20260102"],
    "registry base-url": ["demo", "https://example.com"],
    "serve": ["--port", "0"],
    "webhooks add": [
        *("--kpi", "KD1001", "--url", "https://example.com/hook"),
        *("--secret", "Header,Authorization,literal"),
    ],
    "webhooks redeliver": ["1"],
}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*path, name))


COMMANDS = {name: command for name, command in leaves(cli) if name not in OTHERS}


def arguments(name: str, command: click.Command) -> list[str]:
    if name in GIVEN:
        return GIVEN[name]
    needed = [parameter for parameter in command.params if parameter.required]
    return [word for one in needed for word in ([one.opts[0], "1"] if isinstance(one, click.Option) else ["1"])]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_other_command_creates_a_home(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = tmp_path / "elsewhere"
    monkeypatch.setenv("PLATFORM_HOME", str(home))
    monkeypatch.setattr(sys, "argv", ["platform", *name.split(), *arguments(name, COMMANDS[name])])
    with pytest.raises(SystemExit) as ended:
        main()
    written = capsys.readouterr()
    expected = f"platform: no platform in {home}; set PLATFORM_HOME or run `platform up`\n"
    assert (ended.value.code, written.out, written.err) == (1, "", expected)
    assert not home.exists()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a migrated database that is in no home, as one on a server is."""
    url = f"sqlite:///{tmp_path_factory.mktemp('server')}/platform.db"
    engine = open_engine(url)
    migrate.upgrade(engine)
    with_kpis(engine)
    engine.dispose()
    return url


@pytest.mark.parametrize("name", COMMANDS)
def test_no_other_command_creates_a_home_beside_a_database_that_is_elsewhere(
    name: str, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = tmp_path / "elsewhere"
    monkeypatch.setenv("PLATFORM_HOME", str(home))
    monkeypatch.setenv("PLATFORM_DB_URL", database)
    # the API stops as soon as it has opened everything
    monkeypatch.setattr(DrainingServer, "run", lambda *_, **__: None)
    monkeypatch.setattr(sys, "argv", ["platform", *name.split(), *arguments(name, COMMANDS[name])])
    with pytest.raises(SystemExit):
        main()
    assert "Traceback" not in capsys.readouterr().err
    assert not home.exists()


def test_a_literal_secret_needs_the_home_of_the_platform_or_its_key(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = tmp_path / "elsewhere"
    monkeypatch.setenv("PLATFORM_HOME", str(home))
    monkeypatch.setenv("PLATFORM_DB_URL", database)

    def added() -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["platform", "webhooks", "add", *GIVEN["webhooks add"]])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    expected = (
        "platform: the platform has no key to encrypt a literal secret with; set PLATFORM_HOME to the home of the"
        f" platform (now {home}, which does not exist) or PLATFORM_WEBHOOK_KEY to its key, or give the secret as"
        " env:NAME\n"
    )
    assert added() == (1, expected)
    assert not home.exists()
    monkeypatch.setenv("PLATFORM_WEBHOOK_KEY", "k" * 32)
    assert added() == (0, "")
    assert not home.exists()

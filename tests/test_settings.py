"""Settings: what an operator may write, and the one line that a mistake is answered with."""

import re
from pathlib import Path

import pytest

from platform_defs.errors import SettingsError
from platform_defs.settings import Settings, resolve_secret, unknown_variables

ROOT = Path(__file__).resolve().parent.parent


def test_without_any_variable_everything_is_embedded_and_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load()
    assert settings.database_url.render_as_string() == f"sqlite:///{settings.home}/platform.db"
    assert settings.dagster_database_url is None
    assert settings.graph_url == "embedded"
    assert (settings.api_host, settings.ui_host) == ("127.0.0.1", "127.0.0.1")
    assert settings.home.is_absolute()


def test_dagster_has_a_database_of_its_own_beside_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_DB_URL", "mysql://me:secret@db.example/platform?ssl_disabled=true")
    url = Settings.load().dagster_database_url
    assert url is not None
    assert url.render_as_string() == "mysql+mysqlconnector://me:***@db.example/platform_dagster?ssl_disabled=true"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("PLATFORM_DB_URL", "postgresql://x/y", "PLATFORM_DB_URL: postgresql is not supported"),
        ("PLATFORM_DB_URL", "mysql://me:s3cret@host", "PLATFORM_DB_URL: the URL names no database"),
        ("PLATFORM_DB_URL", "nonsense", "PLATFORM_DB_URL: expected mysql+mysqlconnector://"),
        ("PLATFORM_GRAPH_URL", "http://x", "PLATFORM_GRAPH_URL: expected 'embedded', bolt://"),
        ("PLATFORM_GRAPH_URL", "bolt://host:abc", "PLATFORM_GRAPH_URL: expected 'embedded', bolt://"),
        ("PLATFORM_GRAPH_URL", "bolt://me:s3cret@:7687", "PLATFORM_GRAPH_URL: expected 'embedded', bolt://"),
        ("PLATFORM_DB_URL", "mysql://me:s3cret@host:abc/db", "PLATFORM_DB_URL: expected mysql+mysqlconnector://"),
        ("PLATFORM_MODEL_TIMEOUT_S", "0", "PLATFORM_MODEL_TIMEOUT_S: "),
        ("PLATFORM_ZONE", "Mars/Olympus", "PLATFORM_ZONE: no such time zone: 'Mars/Olympus'"),
        (
            "PLATFORM_API_PORT",
            "70000",
            "PLATFORM_API_PORT: expected a number less than or equal to 65535, got '70000'",
        ),
        ("PLATFORM_API_PORT", "abc", "PLATFORM_API_PORT: expected a whole number, got 'abc'"),
        ("PLATFORM_CHAIN_SHELL", "maybe", "PLATFORM_CHAIN_SHELL: expected true or false, got 'maybe'"),
        ("PLATFORM_LINEAGE_RETENTION_DAYS", "999999999", "PLATFORM_LINEAGE_RETENTION_DAYS: "),
        ("PLATFORM_LINEAGE_TOMBSTONE_DAYS", "999999999", "PLATFORM_LINEAGE_TOMBSTONE_DAYS: "),
        ("PLATFORM_LINEAGE_DEAD_LETTER_DAYS", "999999999", "PLATFORM_LINEAGE_DEAD_LETTER_DAYS: "),
        ("PLATFORM_ARRIVALS_RETENTION_DAYS", "999999999", "PLATFORM_ARRIVALS_RETENTION_DAYS: "),
        ("PLATFORM_AUTH", "none", "PLATFORM_AUTH: expected 'keys' or 'open', got 'none'"),
        ("PLATFORM_HTTP_ALLOW", "10.1.0.1/16", "PLATFORM_HTTP_ALLOW: expected networks such as 10.1.0.0/16"),
        ("PLATFORM_WEBHOOK_ALLOW", "10.1.0.1/16", "PLATFORM_WEBHOOK_ALLOW: expected networks such as 10.1.0.0/16"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_variable_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        Settings.load()
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_an_empty_home_is_the_default_and_not_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_HOME", "")
    assert Settings.load().home == Path(".platform").absolute()


def test_every_setting_is_in_the_table_of_the_readme() -> None:
    """A row names one variable in full; `_SUFFIX` after it replaces its end."""
    named: set[str] = set()
    for line in (ROOT / "README.md").read_text().splitlines():
        if names := re.findall(r"`(\w+)`", line.split("|")[1] if line.startswith("| `PLATFORM_") else ""):
            first, *others = names
            words = first.split("_")
            named |= {first, *others}
            named |= {"_".join(words[:count]) + other for other in others for count in range(1, len(words))}
    missing = {f"PLATFORM_{name.upper()}" for name in Settings.model_fields} - named
    assert missing == set()


def test_a_secret_is_found_by_its_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HIDDEN", "one")
    (tmp_path / "secret").write_text("two\n")
    assert resolve_secret("env:HIDDEN") == "one"
    assert resolve_secret(f"file:{tmp_path}/secret") == "two"
    with pytest.raises(SettingsError, match="secret env:ABSENT is not set"):
        resolve_secret("env:ABSENT")
    with pytest.raises(SettingsError, match="cannot be read"):
        resolve_secret(f"file:{tmp_path}/absent")


def test_named_sources_come_from_their_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_SOURCE_WAREHOUSE_URL", "mysql://w/d")
    assert Settings.load().sources == {"WAREHOUSE": "mysql://w/d"}


def test_keys_of_the_operators_file_replace_ours_in_the_instance(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from platform_defs.dagster_instance import instance_config, uses_warm_launcher

    assert uses_warm_launcher(Settings.load())
    config = tmp_path / "dagster.yaml"
    config.write_text("run_launcher: {module: dagster, class: DefaultRunLauncher}\n")
    monkeypatch.setenv("PLATFORM_DAGSTER_CONFIG", str(config))
    assert not uses_warm_launcher(Settings.load())
    assert instance_config(Settings.load())["run_launcher"]["class"] == "DefaultRunLauncher"
    assert instance_config(Settings.load())["storage"]
    config.write_text("- not a mapping\n")
    with pytest.raises(SettingsError, match=r"PLATFORM_DAGSTER_CONFIG: .* holds no mapping"):
        instance_config(Settings.load())


def test_variables_that_no_setting_has_are_named_and_those_of_sources_are_none_of_them() -> None:
    sources = ["PLATFORM_SOURCE_DW_URL", "PLATFORM_SOURCE_DW_QUERIES", "PLATFORM_SOURCE_QUERIES"]
    assert unknown_variables([*sources, "PLATFORM_RUNER_SLOTS"]) == {"PLATFORM_RUNER_SLOTS": "PLATFORM_RUNNER_SLOTS"}


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("PLATFORM_SOURCE_DW", "PLATFORM_SOURCE_DW_URL"),
        ("PLATFORM_SOURCE_DW_URI", "PLATFORM_SOURCE_DW_URL"),
        ("PLATFORM_SOURCE_MY_DW", "PLATFORM_SOURCE_MY_DW_URL"),
        ("PLATFORM_SOURCE_DW_QUERY", "PLATFORM_SOURCE_DW_QUERIES"),
        ("PLATFORM_SOURCE_QUERYS", "PLATFORM_SOURCE_QUERIES"),
        ("PLATFORM_SOURCE_URL", "PLATFORM_SOURCE_<NAME>_URL"),
        ("PLATFORM_SOURCE_", "PLATFORM_SOURCE_<NAME>_URL"),
    ],
)
def test_a_variable_that_names_a_source_is_told_what_is_set_for_sources(written: str, nearest: str) -> None:
    assert unknown_variables([written]) == {written: nearest}

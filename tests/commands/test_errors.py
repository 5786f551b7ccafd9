"""A name that nobody has is one line and an exit code, and is never taken for one of which there is nothing to say."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from platform_defs.commands.tables import print_table
from tests.commands.command_line import RunPlatform

SOURCE = "no active source has the code 'nope'; `platform registry list` shows all"
MODEL = "no model has the id 'nope'; `platform models list` shows all"
CHAIN = "chain not found: nope; `platform chains list` shows all"
RUN = "run not found: nope; `platform chains runs` shows the newest"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ingest run nope works", SOURCE),
        ("ingest windows nope works", SOURCE),
        ("ingest signal nope works 1", SOURCE),
        ("ingest unblock nope works", SOURCE),
        ("models tasks nope", MODEL),
        ("models batches nope", MODEL),
        ("models values nope", MODEL),
        ("models publish nope", MODEL),
        ("models run nope --from 20251201 --to 20251202", MODEL),
        ("chains show nope", CHAIN),
        ("chains start nope", CHAIN),
        ("chains runs --chain nope", CHAIN),
        ("chains nodes nope", RUN),
        ("chains stop nope", RUN),
        ("chains retry nope a", RUN),
        ("registry show nope", "no source has the code 'nope'; `platform registry list` shows all"),
        ("registry base-url nope https://a.example", "no source has the code 'nope'; `platform registry list` shows"),
        ("keys revoke nope", "no key has the id or name 'nope'; `platform keys list` shows them"),
        ("webhooks disable 5", "no subscription has the id 5; `platform webhooks list` shows all"),
        ("webhooks redeliver 5", "no delivery has the id 5; `platform webhooks deliveries` lists them"),
        ("runner release 5", "nothing has run in "),
        ("models release 5", "nothing has run in "),
        ("lineage graph --tenant 5", "--tenant: tenant 5 is not on record; there is none, `platform tenants add`"),
        ("models load /no/such.yaml", "/no/such.yaml: No such file or directory"),
        ("chains load /no/such.yaml", "/no/such.yaml: No such file or directory"),
        ("demo show", "there is no demo in "),
        ("demo load", "nothing is running in "),
    ],
)
def test_an_unknown_name_is_one_line(run_platform: RunPlatform, command: str, expected: str) -> None:
    code, out, err = run_platform(*command.split())
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith(f"platform: {expected}")


@pytest.mark.parametrize(
    "command",
    [
        *("ingest replay {} 1", "ingest replay 1 {}", "runner release {}", "models release {}"),
        *("webhooks disable {}", "webhooks redeliver {}", "tenants add {} code name"),
    ],
)
@pytest.mark.parametrize("id", ["99999999999999999999", "0", "x", "²"])
def test_what_can_be_no_id_is_refused_before_the_database_is_asked(
    run_platform: RunPlatform, command: str, id: str
) -> None:
    code, out, err = run_platform(*command.format(id).split())
    assert (code, out) == (2, "")
    assert err.endswith(f"expected a whole number above 0, got {id!r}.\n")


@pytest.mark.parametrize("system", ["chains", "models", "registry"])
def test_what_is_no_file_to_load_is_one_line_that_names_it(
    run_platform: RunPlatform, tmp_path: Path, system: str
) -> None:
    for name, content, expected in (
        ("empty", b"", "{}:1: expected "),
        ("binary", b"\xff\xfe\x00a", "{}:1: expected YAML in UTF-8, got bytes that are no text"),
        ("open", b"a: [1", "{}:1: expected YAML; "),
        ("folder", None, "platform: {}: Is a directory"),
        ("absent", None, "platform: {}: No such file or directory"),
    ):
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        elif name == "folder":
            file.mkdir()
        code, out, err = run_platform(system, "load", str(file))
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert err.startswith(expected.format(file))


def test_a_list_without_rows_says_so_and_shows_no_headers(run_platform: RunPlatform) -> None:
    run_platform("models", "load", str(Path(__file__).parents[2] / "docs/examples/models.yaml"))
    for command in ("models values MODEL-01", "models tasks MODEL-01", "models batches MODEL-01", "chains audit nope"):
        code, out, err = run_platform(*command.split())
        assert (code, out) == (0, "")
        assert err.startswith("no"), err


def test_a_source_that_is_there_has_its_endpoints_named(run_platform: RunPlatform) -> None:
    run_platform("registry", "load", "preset:crossref")
    for command in ("windows", "unblock"):
        assert run_platform("ingest", command, "crossref", "works")[0] == 0
        assert (
            "source crossref has no endpoint 'nope'; it has works"
            in run_platform("ingest", command, "crossref", "nope")[2]
        )


def test_a_file_that_is_no_file_of_chains_is_told_what_to_hold(run_platform: RunPlatform, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\n")
    code, _, err = run_platform("chains", "load", str(tmp_path / "file"))
    assert (code, err) == (1, f"{tmp_path}/file:1: the file: expected fields, such as chains, jobs\n")


@pytest.mark.parametrize("command", ["runner release 5", "models release 5"])
def test_an_instance_of_other_settings_is_one_line_that_names_them(
    run_platform: RunPlatform, tmp_path: Path, command: str
) -> None:
    folder = tmp_path / "home" / "dagster"
    folder.mkdir()
    # as a `platform up` on MySQL writes it
    (folder / "dagster.yaml").write_text("storage: {mysql: {mysql_url: {env: PLATFORM_DAGSTER_DB_URL}}}\n")
    code, out, err = run_platform(*command.split())
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith(f"platform: Dagster's instance in {folder} does not open; set PLATFORM_DB_URL and")


def test_a_misspelt_command_names_the_nearest(run_platform: RunPlatform) -> None:
    assert "Did you mean 'selfcheck'?" in run_platform("selfchek")[2]
    assert "Did you mean 'list'?" in run_platform("chains", "lst")[2]


def test_times_in_lists_are_utc_to_the_second(capsys: pytest.CaptureFixture[str]) -> None:
    east = datetime(2026, 11, 18, 4, 46, 57, 51410, timezone(timedelta(hours=9)))
    print_table(("a", "b", "c"), [(east.isoformat(), east.astimezone(UTC), "2026-11-17")])
    assert capsys.readouterr().out.splitlines()[1] == "2026-11-17 19:46:57  2026-11-17 19:46:57  2026-11-17"

"""`platform registry`, as an operator types it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from platform_defs.cli import main
from tests.ingest.registry.making import GOOD

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Exit code, stdout and stderr of `platform registry …`."""
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["platform", "registry", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out, written.err

    return command


def test_a_preset_is_loaded_listed_moved_and_shown(run: Run) -> None:
    code, out, _ = run("load", "preset:crossref")
    assert code == 0
    assert "added reg_prov_endpoint_def crossref.works\n" in out
    assert run("load", "preset:crossref") == (0, "nothing changes\n", "")
    header, line = run("list")[1].splitlines()
    assert header.split() == ["code", "name", "state", "endpoints", "details"]
    assert line.split() == ["crossref", "Crossref", "active", "works", "works_by_doi"]
    assert run("base-url", "crossref", "http://localhost:1")[0] == 0
    assert "base_url_override: 'http://localhost:1' -> None" in run("diff", "preset:crossref")[1]
    shown = json.loads(run("show", "crossref", "--json")[1])
    harvest = shown["endpoints"]["works"]["HARVEST"]
    assert harvest["spec"]["search"]["http"]["baseUrl"] == "http://localhost:1"
    assert harvest["origins"]["search.http.base_url"].startswith("reg_prov_http_cfg crossref ALL")
    assert "search.http.base_url = http://localhost:1  (reg_prov_http_cfg" in run("show", "crossref")[1]


def test_a_file_with_problems_is_refused_with_all_of_them(run: Run) -> None:
    Path("bad.yaml").write_text(GOOD.replace("page_size: 100", "page_size: 0").replace("size: 1d", "size: 1x"))
    code, out, err = run("load", "bad.yaml")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "bad.yaml:14: pagination: page_size: expected a whole number from 1 to 2147483647, got 0",
        "bad.yaml:20: window: size: '1x': expected a duration such as 6h or 1d",
    ]
    assert run("list")[2].startswith("no sources yet; load a file or one of preset:crossref, ")


def test_another_code_has_to_be_a_name_because_assets_are_called_by_it(run: Run) -> None:
    assert run("load", "preset:crossref", "--code", "a b/c") == (
        1,
        "",
        "preset:crossref:1: another code: 'a b/c': expected a letter, then letters, digits, '_' or '-',"
        " at most 64 characters\n",
    )
    assert run("load", "preset:crossref", "--code", "a-b_c")[0] == 0


def test_a_source_and_an_endpoint_without_a_good_name_hide_no_other_problem(run: Run) -> None:
    bad = GOOD.replace("code: demo", "code: a b").replace("name: items", "name: 7").replace("size: 1d", "size: 1x")
    Path("bad.yaml").write_text(bad.replace("method: GET", "methd: GET", 1))
    told = run("load", "bad.yaml")[2].splitlines()
    assert [line.split(": ")[0] for line in told] == [f"bad.yaml:{line}" for line in (2, 20, 31, 31, 33)]


def test_a_spec_that_does_not_compile_is_told_by_the_names_of_the_file(run: Run) -> None:
    Path("bad.yaml").write_text(GOOD.replace("      watermark_key: updated_at\n", "").replace("size: 1d", "size: 2d"))
    assert run("load", "bad.yaml")[2].splitlines() == [
        "bad.yaml:20: demo: window.size: expected 1h, 2h, 3h, 4h, 6h, 8h, 12h, 1d or 1w, the sizes that partitions of"
        " the UI may have, got 2 days, 0:00:00",
        "bad.yaml:30: demo: window.watermark_key: expected the field by which windows advance, such as updated_at",
    ]


def test_what_is_not_there_is_said_in_one_line(run: Run) -> None:
    assert run("show", "nobody") == (
        1,
        "",
        "platform: no source has the code 'nobody'; `platform registry list` shows all\n",
    )
    code, _, err = run("load", "preset:nothing")
    assert (code, "no preset is named 'nothing'; there are crossref, " in err) == (1, True)
    assert run("load", "absent.yaml")[0] == 1

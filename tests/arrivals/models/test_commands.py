"""`platform models`, as an operator types it, and what the catalog then holds."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, select

from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.cli import main
from platform_defs.runner.fingerprint import read_fingerprint
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_kpi, metrics_model
from tests.arrivals.models.test_file import GOOD

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Exit code, stdout and stderr of `platform models …`."""
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["platform", "models", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out, written.err

    return command


def write(content: str, name: str = "models.yaml") -> str:
    Path(name).write_text(content)
    return name


def test_a_file_is_loaded_listed_published_and_loaded_again(engine: Engine, run: Run) -> None:
    assert run("load", write(GOOD)) == (0, "new: MODEL-01\ncomputed KPIs: KC2001\n", "")
    listed = (
        "id        name          state        source    tables                         kpis           due\n"
        "MODEL-01  Daily orders  unpublished  platform  DW_FACT_ORDER_D,DW_DIM_SHOP_D  KD1001,KD1002  08:30\n"
    )
    assert run("list") == (0, listed, "")
    before = read_fingerprint(engine)
    assert run("publish", "MODEL-01") == (
        0,
        "MODEL-01 published; the code location reloads, so that the UI shows it."
        " Batches of the last 7 days whose tables have arrived run now\n",
        "",
    )
    assert read_fingerprint(engine) != before, "whoever builds definitions notices"
    assert run("publish", "MODEL-01") == (0, "MODEL-01 is already published\n", "")
    other = GOOD.replace("DW_DIM_SHOP_D", "NEW_D").replace("kpi_id: KD1002", "kpi_id: KD1003")
    other = other.replace("KD1001 / KD1002", "KD1001 / KD1003").replace('    due: "08:30"\n', "")
    loaded = "updated: MODEL-01\ncomputed KPIs: KC2001\nMODEL-01 is now version 2\n"
    assert run("load", write(other)) == (0, loaded, "")
    assert json.loads(run("list", "--json")[1]) == {
        "id": "MODEL-01",
        "name": "Daily orders",
        "state": "published",
        "source": "platform",
        "tables": ["DW_FACT_ORDER_D", "NEW_D"],
        "kpis": ["KD1001", "KD1003"],
        "due": None,
    }
    published_at = select(metrics_model.c.published_at)
    assert read(engine, lambda connection: connection.scalar(published_at)) is not None
    assert run("unpublish", "MODEL-01")[1].startswith("MODEL-01 unpublished; ")
    assert run("unpublish", "MODEL-01") == (0, "MODEL-01 is not published\n", "")
    assert read(engine, lambda connection: connection.scalar(published_at)) is None


def test_models_that_a_file_does_not_name_stay_as_they_are(engine: Engine, run: Run) -> None:
    run("load", write(GOOD))
    second = GOOD.replace("MODEL-01", "MODEL-02").replace("KD", "KE").replace("KC2001", "KC2002")
    second = second.replace("KE1001 / KE1002", "KE1001 / KC2001")
    assert run("load", write(second)) == (0, "new: MODEL-02\ncomputed KPIs: KC2002\n", "")
    listed = [json.loads(line)["kpis"] for line in run("list", "--json")[1].splitlines()]
    assert listed == [["KD1001", "KD1002"], ["KE1001", "KE1002"]]
    kpi = metrics_kpi
    query = select(kpi.c.kpi_id, kpi.c.depends_on).where(kpi.c.kpi_type == "COMPUTED").order_by(kpi.c.kpi_id)
    assert [tuple(row) for row in read(engine, lambda connection: connection.execute(query).all())] == [
        ("KC2001", ["KD1001", "KD1002"]),
        ("KC2002", ["KE1001", "KC2001"]),
    ]


def test_with_one_problem_nothing_is_loaded_and_each_problem_is_a_line(engine: Engine, run: Run) -> None:
    run("load", write(GOOD))
    before = read_fingerprint(engine)
    second = GOOD.replace("MODEL-01", "MODEL-02").replace("KD1002", "KD1009").replace("KC2001", "KC2009")
    code, out, err = run("load", write(second + "  - {kpi_id: KX, name: x, expression: KY}\n", "second.yaml"))
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "second.yaml:9: KPI KD1001 belongs to model MODEL-01",
        "second.yaml:14: computed KPI KX: names the undefined KPI KY",
    ]
    assert len(run("list")[1].splitlines()) == 2, "the header and one model"
    assert read_fingerprint(engine) == before


def test_a_mistake_is_one_line_and_exit_code_1(run: Run) -> None:
    for arguments, expected in (
        (("load", "absent.yaml"), "No such file"),
        (("publish", "NOBODY"), "no model has the id 'NOBODY'"),
        (("unpublish", "NOBODY"), "no model has the id 'NOBODY'"),
    ):
        code, out, err = run(*arguments)
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert expected in err


def test_however_many_models_there_are_three_queries_load_them(engine: Engine) -> None:
    pieces = [GOOD.replace("MODEL-01", f"M{n}").replace("KD", f"KD{n}.").replace("KC", f"KC{n}.") for n in range(30)]
    models = "".join(piece[piece.index("  - model_id") : piece.index("computed_kpis:")] for piece in pieces)
    file = read_file(f"models:\n{models}".encode(), "many.yaml")
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *others: object) -> None:
        statements.append(statement)

    catalog.save(engine, file)
    event.listen(engine, "before_cursor_execute", note)
    try:
        found = read(engine, catalog.load_models)
        named = read(engine, lambda connection: catalog.load_models(connection, ["M7", "M3", "ABSENT"]))
        assert read(engine, lambda connection: catalog.load_models(connection, [])) == {}
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert len([statement for statement in statements if not statement.startswith("BEGIN")]) == 6
    assert list(found) == sorted(f"M{n}" for n in range(30))
    assert list(named) == ["M3", "M7"]
    assert named["M7"] == next(model for model in file.models if model.model_id == "M7")

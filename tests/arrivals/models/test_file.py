"""Model files: every problem is reported with its line, also conflicts with KPIs in the database."""

import pytest

from platform_defs.arrivals.models.file import FileContents, KnownKpis, check_file, read_file
from platform_defs.arrivals.models.model import ComputedKpi, Kpi, Model
from platform_defs.yaml_lines import YamlFileError

GOOD = """\
models:
  - model_id: MODEL-01
    name: Daily orders
    depends_on: [DW_FACT_ORDER_D, DW_DIM_SHOP_D]
    source: platform
    dimensions: [region]
    sql: SELECT ${dimGroup}, ${kpis} FROM DW_FACT_ORDER_D WHERE op_time = ${op_time} GROUP BY ${dimGroup}
    kpis:
      - {kpi_id: KD1001, name: Order amount, expression: SUM(amount)}
      - {kpi_id: KD1002, name: Orders, expression: COUNT(*)}
    due: "08:30"
computed_kpis:
  - {kpi_id: KC2001, name: Average order, expression: KD1001 / KD1002}
"""


def load(text: str | bytes, known: KnownKpis = KnownKpis()) -> FileContents:  # noqa: B008  # frozen
    return check_file(read_file(text if isinstance(text, bytes) else text.encode(), "models.yaml"), known)


def problems(text: str | bytes, known: KnownKpis = KnownKpis()) -> list[str]:  # noqa: B008  # frozen
    with pytest.raises(YamlFileError) as caught:
        load(text, known)
    return list(caught.value.problems)


def test_the_file_of_the_manual_is_read() -> None:
    [model], [computed] = load(GOOD).models, load(GOOD).computed
    assert model == Model(
        model_id="MODEL-01",
        name="Daily orders",
        depends_on=("DW_FACT_ORDER_D", "DW_DIM_SHOP_D"),
        source="platform",
        dimensions=("region",),
        sql="SELECT ${dimGroup}, ${kpis} FROM DW_FACT_ORDER_D WHERE op_time = ${op_time} GROUP BY ${dimGroup}",
        kpis=(Kpi("KD1001", "Order amount", "SUM(amount)"), Kpi("KD1002", "Orders", "COUNT(*)")),
        due="08:30",
    )
    assert computed == ComputedKpi("KC2001", "Average order", "KD1001 / KD1002", ("KD1001", "KD1002"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    name: Daily orders\n", "", "models.yaml:2: model: name is missing"),
        (
            "    source: platform",
            "    sauce: platform",
            "models.yaml:5: model: unknown field sauce; known are model_id",
        ),
        ("    source: platform", "    source: my-dw", "models.yaml:5: model: source: 'my-dw': expected a letter"),
        ("models:", "modules:", "models.yaml:1: the file: unknown field modules; known are models, computed_kpis"),
        ("    name: Daily orders", "    name: 7", "models.yaml:3: model: name: expected text in quotes"),
        ("    name: Daily orders", "    name: ' '", "models.yaml:3: model: name: expected text, found none"),
        ("    name: Daily orders", "    name: " + "n" * 256, "models.yaml:3: model: name: 256 characters, at most 255"),
        ("    name: Daily orders", "    model_id: M", "models.yaml:3: model: model_id is there twice"),
        ("model_id: MODEL-01", "model_id: 1ST", "models.yaml:2: model: model_id: '1ST': expected a letter, then"),
        ("kpi_id: KD1001", "kpi_id: K D", "models.yaml:9: KPI: kpi_id: 'K D': expected a letter, then"),
        ("kpi_id: KD1001", "kpi_id: " + "K" * 65, "models.yaml:9: KPI: kpi_id: 65 characters, at most 64"),
        ("kpi_id: KD1001", "kpi_id: Region", "models.yaml:9: KPI: Region is also a dimension"),
        ("kpi_id: KD1002", "kpi_id: KD1001", "models.yaml:10: KPI KD1001 is there twice, first in line 9"),
        ("kpi_id: KC2001", "kpi_id: KD1001", "models.yaml:13: KPI KD1001 is there twice, first in line 9"),
        (
            "depends_on: [DW_FACT_ORDER_D, DW_DIM_SHOP_D]",
            "depends_on: []",
            "models.yaml:2: model: depends_on: expected",
        ),
        (
            "depends_on: [DW_FACT_ORDER_D, DW_DIM_SHOP_D]",
            "depends_on: T",
            "models.yaml:4: model: depends_on: expected a",
        ),
        (
            "[DW_FACT_ORDER_D, DW_DIM_SHOP_D]",
            "[A, no]",
            "models.yaml:4: model: an entry of depends_on: expected text in",
        ),
        ("[DW_FACT_ORDER_D, DW_DIM_SHOP_D]", "[A, A]", "models.yaml:4: model: depends_on: A is there twice"),
        ("[DW_FACT_ORDER_D, DW_DIM_SHOP_D]", "[' A']", "models.yaml:4: model: depends_on: ' A' has blanks around it"),
        ('due: "08:30"', 'due: "8:30"', "models.yaml:11: model: due: '8:30': expected HH:MM, or +1 HH:MM"),
        ("FROM DW_FACT_ORDER_D", "FORM DW_FACT_ORDER_D", "models.yaml:7: model: sql: does not parse"),
        ("GROUP BY ${dimGroup}", "FOR UPDATE", "models.yaml:7: model: sql: expected one read-only query"),
        ("COUNT(*)", "'SUM(amount'", "models.yaml:10: KPI: expression: does not parse"),
        ("KD1001 / KD1002", "KD1001 / KD9", "models.yaml:13: computed KPI KC2001: names the undefined KPI KD9"),
        ("KD1001 / KD1002", "KD1001 /", "models.yaml:13: computed KPI KC2001: expected arithmetic"),
        ("KD1001 / KD1002", "KD1001 / KC2001", "models.yaml:13: computed KPIs in a circle: KC2001 -> KC2001"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert [problem for problem in problems(GOOD.replace(old, new, 1)) if problem.startswith(expected)]


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    text = GOOD.replace("Daily orders", "7").replace('"08:30"', "soon").replace("KD1001 / KD1002", "KD1001 / KD9")
    text += "  - {kpi_id: KA, name: a, expression: KB + 1}\n  - {kpi_id: KB, name: b, expression: KA + 1}\n"
    assert [problem.partition(": ")[0] for problem in problems(text)] == [
        "models.yaml:3",
        "models.yaml:11",
        "models.yaml:13",
        "models.yaml:14",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "models.yaml:1: expected models or computed_kpis, found nothing"),
        ("models: []", "models.yaml:1: expected models or computed_kpis, found neither"),
        ("- a", "models.yaml:1: the file: expected fields"),
        ("models: 7", "models.yaml:1: the file: models: expected a list"),
        ("models:\n  - 7", "models.yaml:2: model: expected fields, such as model_id"),
        ("models:\n  - {a: b\n", "models.yaml:3: expected YAML; "),
        ("models:\n\t- a", "models.yaml:2: expected YAML; "),
        ("a: 1\n---\nb: 2", "models.yaml:2: expected YAML; "),
        ("a: &a [1]\nb: [*a, *a]", "models.yaml:2: aliases (*a) are not read"),
        (
            "models: !!python/object/apply:os.getcwd []",
            "models.yaml:1: expected models or computed_kpis, found neither",
        ),
        ("models:\n- \x07", "models.yaml:2: expected YAML; "),
        (b"models:\n- \xff", "models.yaml:2: expected YAML in UTF-8, got bytes that are no text"),
        ("[" * 5000, "models.yaml:1: nested too deeply"),
    ],
)
def test_what_is_no_such_file_is_refused(text: str | bytes, expected: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_an_unquoted_time_and_a_day_after_are_due() -> None:
    # YAML reads an unquoted 12:30 as the number 750.
    assert load(GOOD.replace('"08:30"', "12:30")).models[0].due == "12:30"
    assert load(GOOD.replace('"08:30"', "+1 02:00")).models[0].due == "+1 02:00"
    assert load(GOOD.replace('    due: "08:30"\n', "")).models[0].due is None


def test_what_is_stored_already_counts() -> None:
    computed = "computed_kpis:\n  - {kpi_id: KC1, name: c, expression: KD1 - KC9}\n"
    stored = KnownKpis({"KD1": "OTHER"}, {"KC9": ("KD1",)})
    assert load(computed, stored).computed[0].depends_on == ("KD1", "KC9")
    assert problems(computed) == ["models.yaml:2: computed KPI KC1: names the undefined KPI KD1"]
    assert problems(computed, KnownKpis({"KD1": "OTHER"}, {"KC9": ("KC1",)})) == [
        "models.yaml:2: computed KPIs in a circle: KC9 -> KC1 -> KC9"
    ]
    assert problems(GOOD, KnownKpis({"KD1001": "OTHER", "KC2001": "OTHER"})) == [
        "models.yaml:9: KPI KD1001 belongs to model OTHER",
        "models.yaml:13: KPI KC2001 belongs to model OTHER",
    ]
    assert (
        problems(GOOD, KnownKpis({}, {"KD1001": ("KD1002",)}))[0]
        == "models.yaml:9: KPI KD1001 is a computed KPI already"
    )
    assert problems(GOOD, KnownKpis({"KD1": "MODEL-01"}, {"KC9": ("KD1",)})) == [
        "models.yaml:2: KPI KD1 is gone from the model, but KC9 builds on it"
    ]
    load(GOOD, KnownKpis({"KD1001": "MODEL-01", "KD1": "MODEL-01"}, {"KC2001": ("KD1",)}))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT region, 1 AS KD1001, 2 AS KD1002 FROM webhooks_x JOIN work",
            "does not read work, a table of the platform",
        ),
        ("SELECT region, 1 AS KD1001, 2 AS KD1002 FROM mysql.user", "does not read mysql.user"),
        ("SELECT region, 1 AS KD1001, LOAD_FILE('/etc/passwd') AS KD1002 FROM mine", "LOAD_FILE is refused"),
    ],
)
def test_a_query_that_reaches_too_far_is_refused_when_it_is_loaded(query: str, expected: str) -> None:
    line = next(line for line in GOOD.splitlines() if line.strip().startswith("sql:"))
    file = read_file(GOOD.replace(line, f"    sql: {query}").encode(), "models.yaml")
    assert [expected in str(problem) for problem in file.problems] == [True]

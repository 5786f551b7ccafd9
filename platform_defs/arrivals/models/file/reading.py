"""Reads a model file: its models and KPIs with their lines, and every problem that shows without the database."""

import re
from dataclasses import dataclass, field

import yaml

from platform_defs.arrivals.models.due import Due
from platform_defs.arrivals.models.kpi_expressions import KPI_ID
from platform_defs.arrivals.models.model import Kpi, Model
from platform_defs.arrivals.models.sql import InvalidSql, check_expression, check_query
from platform_defs.arrivals.partitions import PERIODS
from platform_defs.sources.named import PLATFORM_SOURCE
from platform_defs.sources.reach import Reach
from platform_defs.yaml_lines import Fields, NotYaml, Problem, Text, read_document

MAX_NAME = 255
MAX_MODEL_ID = 255
MAX_TABLE = 255
MAX_KPI_ID = 64
MAX_SOURCE = 64
MAX_DIMENSION = 64
MAX_RETRIES = 100
MAX_TIMEOUT_S = 86_400
ID = KPI_ID
SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_ID_RULE = "expected a letter, then letters, digits, '_', '.' or '-'"
_SOURCE_RULE = "expected a letter, then letters, digits or '_'"
_KPI_FIELDS = ("kpi_id", "name", "expression")


@dataclass(frozen=True)
class ComputedKpiEntry:
    """A computed KPI of the file. The KPIs in its expression are found later, when the stored KPIs are known."""

    kpi_id: str
    name: str
    expression: Text


@dataclass
class ModelFile:
    """What a file says. `models` and `computed` hold entries without problems, the lines those of all entries."""

    name: str
    models: list[Model] = field(default_factory=list)
    computed: list[ComputedKpiEntry] = field(default_factory=list)
    model_lines: dict[str, int] = field(default_factory=dict)
    extended_lines: dict[str, int] = field(default_factory=dict)
    computed_lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_file(content: bytes, name: str) -> ModelFile:
    """Reads all entries of the file, and collects the problems of those that cannot be read."""
    file = ModelFile(name)
    try:
        document = read_document(content)
    except NotYaml as error:
        file.problems.append(error.problem)
        return file
    if document is None:
        file.problems.append(Problem(1, "expected models or computed_kpis, found nothing"))
        return file
    top = Fields.of(document, "the file", file.problems, (), ("models", "computed_kpis"))
    for node in top.items("models"):
        _read_model(node, file)
    for node in top.items("computed_kpis"):
        _read_computed(node, file)
    if not (file.problems or file.models or file.computed):
        file.problems.append(Problem(top.line, "expected models or computed_kpis, found neither"))
    return file


def _read_model(node: yaml.Node, file: ModelFile) -> None:
    before = len(file.problems)
    fields = Fields.of(
        node,
        "model",
        file.problems,
        ("model_id", "name", "depends_on", "sql", "kpis"),
        ("source", "dimensions", "retries", "timeout", "due", "period"),
    )
    model_id = fields.matching_text("model_id", ID, _ID_RULE, longest=MAX_MODEL_ID)
    if model_id is not None:
        _claim_id(file, file.model_lines, model_id, "model")
    name = fields.text("name", longest=MAX_NAME)
    depends_on = fields.texts("depends_on", longest=MAX_TABLE)
    for table in depends_on:
        if table.value != table.value.strip():
            fields.problem(table.line, f"depends_on: {table.value!r} has blanks around it, no arrival has")
    if not depends_on and "depends_on" in fields.nodes and len(file.problems) == before:
        fields.problem(fields.line, "depends_on: expected at least one table")
    source = fields.matching_text("source", SOURCE, _SOURCE_RULE, longest=MAX_SOURCE)
    dimensions = fields.texts("dimensions", longest=MAX_DIMENSION)
    retries = _read_number(fields, "retries", 0, MAX_RETRIES)
    timeout_s = _read_number(fields, "timeout", 1, MAX_TIMEOUT_S)
    due = fields.text("due", plain=True)
    if due is not None and Due.parse(due.value) is None:
        fields.problem(due.line, f"due: {due.value!r}: expected HH:MM, or +1 HH:MM for the day after the batch's")
    period = fields.text("period")
    if period is not None and period.value not in PERIODS:
        fields.problem(period.line, f"period: {period.value!r}: expected one of {', '.join(PERIODS)}")
    kpis = _read_kpis(fields, file, dimensions)
    sql = fields.text("sql")
    if sql is not None and kpis is not None:
        try:
            reads_platform = source is None or source.value == PLATFORM_SOURCE
            reach = Reach(schema=None) if reads_platform else None
            check_query(sql.value, [dimension.value for dimension in dimensions], kpis, reach)
        except InvalidSql as error:
            fields.problem(sql.line, f"sql: {error}")
    if len(file.problems) == before and model_id and name and sql and kpis:
        file.models.append(
            Model(
                model_id=model_id.value,
                name=name.value,
                depends_on=tuple(table.value for table in depends_on),
                source=PLATFORM_SOURCE if source is None else source.value,
                dimensions=tuple(dimension.value for dimension in dimensions),
                sql=sql.value,
                kpis=tuple(kpis),
                retries=retries,
                timeout_s=timeout_s,
                due=None if due is None else due.value,
                period=None if period is None else period.value,
            )
        )


def _read_number(fields: Fields, name: str, least: int, most: int) -> int | None:
    written = fields.text(name, plain=True)
    if written is None:
        return None
    if not re.fullmatch("[0-9]{1,6}", written.value, re.ASCII) or not least <= int(written.value) <= most:
        fields.problem(written.line, f"{name}: {written.value!r}: expected a whole number from {least} to {most}")
        return None
    return int(written.value)


def _read_kpis(fields: Fields, file: ModelFile, dimensions: list[Text]) -> list[Kpi] | None:
    """The extended KPIs of a model; None if one of them has a problem."""
    before = len(file.problems)
    kpis = []
    columns = {dimension.value.lower() for dimension in dimensions}
    for node in fields.items("kpis"):
        kpi = Fields.of(node, "KPI", file.problems, _KPI_FIELDS)
        kpi_id, name, expression = (
            kpi.matching_text("kpi_id", ID, _ID_RULE, longest=MAX_KPI_ID),
            kpi.text("name", longest=MAX_NAME),
            kpi.text("expression"),
        )
        if kpi_id is not None:
            _claim_id(file, file.extended_lines, kpi_id, "KPI")
            if kpi_id.value.lower() in columns:
                kpi.problem(kpi_id.line, f"{kpi_id.value} is also a dimension: both would be one column")
        if expression is not None:
            try:
                check_expression(expression.value)
            except InvalidSql as error:
                kpi.problem(expression.line, f"expression: {error}")
        if kpi_id and name and expression:
            kpis.append(Kpi(kpi_id.value, name.value, expression.value.strip()))
    if not kpis and "kpis" in fields.nodes and len(file.problems) == before:
        fields.problem(fields.line, "kpis: expected at least one KPI")
    return kpis if kpis and len(file.problems) == before else None


def _read_computed(node: yaml.Node, file: ModelFile) -> None:
    fields = Fields.of(node, "computed KPI", file.problems, _KPI_FIELDS)
    kpi_id = fields.matching_text("kpi_id", ID, _ID_RULE, longest=MAX_KPI_ID)
    name, expression = fields.text("name", longest=MAX_NAME), fields.text("expression")
    if kpi_id is not None:
        _claim_id(file, file.computed_lines, kpi_id, "KPI")
    if kpi_id and name and expression:
        file.computed.append(ComputedKpiEntry(kpi_id.value, name.value, expression))


def _claim_id(file: ModelFile, lines: dict[str, int], claimed: Text, what: str) -> None:
    """Notes the line of an id; a problem if the file has the id already. Extended and computed KPIs share their ids."""
    others = (lines,) if lines is file.model_lines else (file.extended_lines, file.computed_lines)
    first = next((known[claimed.value] for known in others if claimed.value in known), None)
    if first is None:
        lines[claimed.value] = claimed.line
    else:
        file.problems.append(Problem(claimed.line, f"{what} {claimed.value} is there twice, first in line {first}"))

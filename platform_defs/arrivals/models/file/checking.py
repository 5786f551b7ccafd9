"""Checks a model file against the stored KPIs: ids of other models, unknown KPIs in expressions, cycles."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from platform_defs.arrivals.models.file.reading import ModelFile
from platform_defs.arrivals.models.kpi_expressions import InvalidExpression, find_cycles, referenced_kpis
from platform_defs.arrivals.models.model import ComputedKpi, Model
from platform_defs.yaml_lines import Problem, YamlFileError


@dataclass(frozen=True)
class KnownKpis:
    """The stored KPIs: extended ones with their model, computed ones with the KPIs in their expression."""

    extended: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class FileContents:
    """What a file without problems defines."""

    models: tuple[Model, ...]
    computed: tuple[ComputedKpi, ...]


def check_file(file: ModelFile, known: KnownKpis) -> FileContents:
    """What the file defines. Raises a YamlFileError with all problems if there is one."""
    problems = list(file.problems)
    # The file replaces all stored KPIs of its models, so only KPIs of other models count.
    others = {kpi_id: model for kpi_id, model in known.extended.items() if model not in file.model_lines}
    problems += _kpis_of_others(file, others, known)
    defined = {*others, *known.computed, *file.extended_lines, *file.computed_lines}
    computed = []
    for kpi in file.computed:
        try:
            depends_on = referenced_kpis(kpi.expression.value, defined)
            computed.append(ComputedKpi(kpi.kpi_id, kpi.name, kpi.expression.value.strip(), depends_on))
        except InvalidExpression as error:
            problems.append(Problem(kpi.expression.line, f"computed KPI {kpi.kpi_id}: {error}"))
    stored = {kpi_id: names for kpi_id, names in known.computed.items() if kpi_id not in file.computed_lines}
    problems += _cycle_problems(file, stored | {kpi.kpi_id: kpi.depends_on for kpi in computed})
    if not problems:
        problems += _removed_but_used(file, defined, known)
    if problems:
        raise YamlFileError(file.name, problems)
    return FileContents(tuple(file.models), tuple(computed))


def _kpis_of_others(file: ModelFile, others: Mapping[str, str], known: KnownKpis) -> list[Problem]:
    problems = [
        Problem(line, f"KPI {kpi_id} belongs to model {others[kpi_id]}")
        for lines in (file.extended_lines, file.computed_lines)
        for kpi_id, line in lines.items()
        if kpi_id in others
    ]
    problems += [
        Problem(line, f"KPI {kpi_id} is a computed KPI already")
        for kpi_id, line in file.extended_lines.items()
        if kpi_id in known.computed
    ]
    return problems


def _cycle_problems(file: ModelFile, depends_on: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    problems = []
    for circle in find_cycles(depends_on):
        line = next((file.computed_lines[kpi_id] for kpi_id in circle if kpi_id in file.computed_lines), 1)
        problems.append(Problem(line, f"computed KPIs in a circle: {' -> '.join(circle)}"))
    return problems


def _removed_but_used(file: ModelFile, defined: set[str], known: KnownKpis) -> list[Problem]:
    """KPIs that the file removes from its models although a stored computed KPI refers to them."""
    return [
        Problem(file.model_lines[known.extended[gone]], f"KPI {gone} is gone from the model, but {kpi_id} builds on it")
        for kpi_id, depends_on in known.computed.items()
        if kpi_id not in file.computed_lines
        for gone in depends_on
        if gone not in defined and gone in known.extended
    ]

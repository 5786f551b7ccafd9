"""What a file would change of the stored models: which get a new version, and a diff for people to read."""

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from sqlalchemy import Connection

from platform_defs.arrivals.models.file import FileContents
from platform_defs.arrivals.models.model import Model
from platform_defs.store.tables.arrivals import metrics_kpi


def computes_differently(old: Model, new: Model) -> bool:
    """Whether values of the two would differ in meaning: another query, source, dimensions or KPIs."""
    return _computation(old) != _computation(new)


def _computation(model: Model) -> tuple[Any, ...]:
    return model.sql, model.source, model.dimensions, [(kpi.kpi_id, kpi.expression) for kpi in model.kpis]


def describe_changes(connection: Connection, contents: FileContents, stored: Mapping[str, Model]) -> Iterator[str]:
    """The lines of a diff between what is stored and what the file says."""
    for model in contents.models:
        old = stored.get(model.model_id)
        before = [] if old is None else _lines(old)
        yield from _diff(model.model_id, before, _lines(model), is_new=old is None)
        if old is not None and computes_differently(old, model):
            yield f"{model.model_id}: a new version, {old.version} -> {old.version + 1}"
    rows = connection.execute(metrics_kpi.select().where(metrics_kpi.c.kpi_type == "COMPUTED"))
    computed = {row.kpi_id: [f"name: {row.name}", f"expression: {row.expression}"] for row in rows}
    for kpi in contents.computed:
        after = [f"name: {kpi.name}", f"expression: {kpi.expression}"]
        yield from _diff(kpi.kpi_id, computed.get(kpi.kpi_id, []), after, is_new=kpi.kpi_id not in computed)


def _diff(name: str, before: list[str], after: list[str], *, is_new: bool) -> Iterator[str]:
    if before != after:
        source = "nothing" if is_new else f"{name} (stored)"
        yield from unified_diff(before, after, source, f"{name} (file)", lineterm="", n=1)


def _lines(model: Model) -> list[str]:
    fields: dict[str, Any] = {
        "name": model.name,
        "depends_on": ", ".join(model.depends_on),
        "source": model.source,
        "dimensions": ", ".join(model.dimensions),
        "due": model.due,
        "period": model.period,
        "retries": model.retries,
        "timeout": model.timeout_s,
    }
    lines = [f"{name}: {value}" for name, value in fields.items() if value not in (None, "")]
    lines += [f"sql: {line}" for line in model.sql.splitlines()]
    return lines + [f"kpi {kpi.kpi_id}: {kpi.name}: {kpi.expression}" for kpi in model.kpis]

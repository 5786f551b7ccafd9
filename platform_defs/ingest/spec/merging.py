"""Merges the five levels of the Registry's precedence, and remembers for each value which row set it."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any

from sqlalchemy import Table

from platform_defs.ingest.registry.rows import Row

PLATFORM_DEFAULT = "platform default"
TRIGGER = "trigger"


@dataclass(frozen=True)
class Finding:
    """Something that keeps a spec from being compiled: the table and column, and what was expected there."""

    table: str
    column: str
    text: str
    endpoint: str | None = None
    # which of several rows of the table: a parameter's standard key
    key: str | None = None

    def __str__(self) -> str:
        where = f"{self.table}.{self.column}"
        return f"{where} ({self.endpoint}): {self.text}" if self.endpoint else f"{where}: {self.text}"


@dataclass
class Findings:
    """All findings of one compilation, each once."""

    all: list[Finding] = field(default_factory=list)

    def add(
        self, table: Table | str, column: str, text: str, endpoint: str | None = None, key: str | None = None
    ) -> None:
        name = table if isinstance(table, str) else table.name
        finding = Finding(name, column, text, endpoint, key)
        if finding not in self.all:
            self.all.append(finding)

    def has(self, table: Table, *columns: str) -> bool:
        """Whether one of the columns has a finding: checks that build on it would only repeat that."""
        return any(each.table == table.name and each.column in columns for each in self.all)


@dataclass
class Merged:
    """Values by the path that they have in a spec, such as `window.size`; a later `put` is stronger."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, value: Any, origin: str) -> None:
        """Null says nothing: the weaker level's value stays."""
        if value is not None:
            self.values[path] = value
            self.origins[path] = origin

    def put_map(self, path: str, value: Mapping[str, Any] | None, origin: str) -> None:
        """Merges name by name, so that a source's headers and an endpoint's are sent together."""
        if value is None:
            return
        self.values[path] = {**self.values.get(path, {}), **value}
        for name in value:
            self.origins[f"{path}.{name}"] = origin

    def put_columns(self, prefix: str, row: Row, columns: Mapping[str, str], origin: str) -> None:
        for column, name in columns.items():
            self.put(f"{prefix}.{name}", row[column], origin)

    def put_defaults(self, prefix: str, kind: type) -> None:
        """The weakest level: the defaults of the spec's own fields."""
        for each in fields(kind):
            if each.default is not MISSING:
                self.put(f"{prefix}.{each.name}", each.default, PLATFORM_DEFAULT)

    def part(self, prefix: str, kind: type) -> dict[str, Any]:
        """The merged values of one part of the spec, by the names of its fields."""
        found = {each.name: self.values.get(f"{prefix}.{each.name}") for each in fields(kind)}
        return {name: value for name, value in found.items() if value is not None}

    def get(self, path: str) -> Any:
        return self.values.get(path)


def origin_of(table: Table, row: Row) -> str:
    """Names a row for people: its table, the scope that it is for, and its id."""
    endpoint = row.get("endpoint_name")
    scope = row["provenance_code"] if endpoint is None else f"{row['provenance_code']}.{endpoint}"
    operation = row.get("operation_type", "ALL")
    number = f" #{row['id']}" if row.get("id") is not None else ""
    return f"{table.name} {scope} {operation}{number}"


def seconds(value: Any) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def milliseconds(value: Any) -> timedelta | None:
    return None if value is None else timedelta(milliseconds=value)


# What the trigger of one plan may set, and the type of its value. Neither address nor credential nor the grid of
# windows is among them: a trigger may ask for less or slower, not for something else.
OVERRIDABLE: Mapping[str, type] = {
    "pagination.page_size": int,
    "pagination.max_page": int,
    "batching.id_batch_size": int,
    "batching.max_ids_per_slice": int,
    "rate.refill_per_s": float,
    "rate.burst": int,
    "rate.max_concurrent": int,
    "retry.max_attempts": int,
    "window.safety_lag": timedelta,
    "window.min_size": timedelta,
    "window.max_size": timedelta,
    "max_concurrent_slices": int,
    "stock_limit": int,
}


def put_overrides(merged: Merged, overrides: Mapping[str, Any] | None, findings: Findings) -> None:
    """The strongest level: what the trigger of this plan asks for."""
    for path, value in (overrides or {}).items():
        wanted = OVERRIDABLE.get(path)
        if wanted is None:
            findings.add(TRIGGER, path, f"expected one of {', '.join(OVERRIDABLE)}")
        elif wanted is float and type(value) in (int, float):
            merged.put(path, float(value), TRIGGER)
        elif type(value) is wanted:
            merged.put(path, value, TRIGGER)
        else:
            findings.add(TRIGGER, path, f"expected {_type_name(wanted)}, got {value!r}")


def _type_name(kind: type) -> str:
    return {int: "a whole number", float: "a number", timedelta: "a duration"}[kind]


def strongest(rows: Sequence[Row], column: str) -> Row | None:
    """The strongest row that says anything in this column."""
    return next((row for row in reversed(rows) if row[column] is not None), None)

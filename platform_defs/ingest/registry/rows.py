"""Reads the Registry: the rows that hold at a moment, for all sources or some, one query per table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, or_, select

from platform_defs.ingest.registry.code_columns import CODE_COLUMNS
from platform_defs.ingest.registry.sections import ALL, EFFECTIVE_TABLES, key_columns
from platform_defs.store.tables.registry import reg_expr_field_dict, reg_provenance, sys_dict_item, sys_dict_item_alias

Row = Mapping[str, Any]
ACTIVE = "ACTIVE"
# Definitions are built at once after a load, perhaps on a machine whose clock is behind: a row that begins this soon
# counts already, or else nobody would look again when it does.
CLOCK_TOLERANCE = timedelta(minutes=1)


@dataclass(frozen=True)
class RegistryRows:
    """What the Registry said at one moment; nothing that happens to the tables later changes it."""

    sources: Mapping[str, Row]
    # table name -> its rows that hold, the youngest of each key
    tables: Mapping[str, Sequence[Row]]
    # type -> its active codes
    dictionary: Mapping[str, frozenset[str]] = field(default_factory=dict)
    field_paths: Mapping[str, str] = field(default_factory=dict)

    def of(self, table: Table, code: str) -> list[Row]:
        return [row for row in self.tables.get(table.name, ()) if row["provenance_code"] == code]

    def scoped(self, table: Table, code: str, endpoint: str, operation: str) -> list[Row]:
        """Rows that apply to an endpoint and an operation, from the weakest to the strongest.

        An endpoint's row is stronger than its source's; within each, the operation's is stronger than that for all.
        """
        found = [
            row
            for row in self.of(table, code)
            if row["endpoint_name"] in (endpoint, None) and row["operation_type"] in (operation, ALL)
        ]
        return sorted(found, key=lambda row: (row["endpoint_name"] is not None, row["operation_type"] != ALL))


def read_registry(connection: Connection, now: datetime, codes: Sequence[str] | None = None) -> RegistryRows:
    """As many queries as there are tables, however many sources and endpoints there are."""
    source = select(reg_provenance)
    if codes is not None:
        source = source.where(reg_provenance.c.provenance_code.in_(codes))
    items = select(sys_dict_item.c.type_code, sys_dict_item.c.item_code).where(sys_dict_item.c.is_active)
    dictionary: dict[str, set[str]] = {}
    for kind, code in connection.execute(items):
        dictionary.setdefault(kind, set()).add(code)
    paths = select(reg_expr_field_dict.c.field_key, reg_expr_field_dict.c.default_path).where(
        reg_expr_field_dict.c.is_active, reg_expr_field_dict.c.default_path.is_not(None)
    )
    aliases = _read_aliases(connection)
    return RegistryRows(
        sources={row["provenance_code"]: dict(row) for row in connection.execute(source).mappings()},
        tables={
            table.name: [_without_aliases(table, row, aliases) for row in rows_in_effect(connection, table, now, codes)]
            for table in EFFECTIVE_TABLES
        },
        dictionary={kind: frozenset(found) for kind, found in dictionary.items()},
        field_paths={row.field_key: row.default_path for row in connection.execute(paths)},
    )


def rows_in_effect(
    connection: Connection, table: Table, now: datetime, codes: Sequence[str] | None = None
) -> list[Row]:
    """The rows of a table that hold at this moment; of each key the youngest."""
    moment = now + CLOCK_TOLERANCE
    query = select(table).where(
        table.c.effective_from <= moment,
        or_(table.c.effective_to.is_(None), table.c.effective_to > moment),
        table.c.lifecycle_status_code == ACTIVE,
    )
    if codes is not None:
        query = query.where(table.c.provenance_code.in_(codes))
    names = key_columns(table)
    youngest: dict[tuple[Any, ...], Row] = {}
    for row in connection.execute(query.order_by(table.c.effective_from, table.c.id)).mappings():
        youngest[tuple(row[name] for name in names)] = dict(row)
    return list(youngest.values())


def _read_aliases(connection: Connection) -> Mapping[tuple[str, str, str], str]:
    """(type, source, the source's own code) -> the dictionary's code."""
    alias = sys_dict_item_alias.c
    query = select(alias.type_code, alias.source_system, alias.external_code, alias.item_code)
    return {(kind, source, external): code for kind, source, external, code in connection.execute(query)}


def _without_aliases(table: Table, row: Row, aliases: Mapping[tuple[str, str, str], str]) -> Row:
    """The row with the dictionary's codes in place of those that its source has for them."""
    found = {
        column: aliases[kind, row["provenance_code"], row[column]]
        for column, kind in CODE_COLUMNS.get(table, {}).items()
        if (kind, row["provenance_code"], row[column]) in aliases
    }
    return {**row, **found} if found else row

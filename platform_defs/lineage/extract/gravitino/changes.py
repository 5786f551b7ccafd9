"""Reads the list of changes in an alter_table event: renames, drops, and new properties of the table and its columns.

Renames and drops become facts in the order of the changes, each under the names that are valid at that point. All
properties are collected and stated once, under the names that are valid after all changes.
"""

from collections.abc import Mapping
from typing import Any

from platform_defs.lineage.extract.columns import pick_props
from platform_defs.lineage.extract.gravitino.facets import text_of
from platform_defs.lineage.facts import Dropped, Ref, Renamed
from platform_defs.lineage.indexes import added_index, deleted_index

# type of change -> key of the change -> property of the column
_COLUMN_CHANGES = {
    "ADD_COLUMN": {
        "dataType": "dataType",
        "columnComment": "description",
        "nullable": "nullable",
        "autoIncrement": "autoIncrement",
        "defaultValue": "defaultValue",
        "position": "position",
    },
    "UPDATE_COLUMN_TYPE": {"dataType": "dataType"},
    "UPDATE_COLUMN_COMMENT": {"newComment": "description"},
    "UPDATE_COLUMN_NULLABILITY": {"nullable": "nullable"},
    "UPDATE_COLUMN_DEFAULT_VALUE": {"defaultValue": "defaultValue"},
    "UPDATE_COLUMN_AUTO_INCREMENT": {"autoIncrement": "autoIncrement"},
    "UPDATE_COLUMN_POSITION": {"position": "position"},
}


class Changes:
    """The effect of a list of changes on a table.

    table: its name afterwards. moves: renames and drops, in order. props: the table's new properties.
    """

    def __init__(self, table: Ref, changes: object) -> None:
        self.table = table
        self.moves: list[Renamed | Dropped] = []
        self.props: dict[str, Any] = {}
        self._columns: dict[str, dict[str, Any]] = {}
        for change in changes if isinstance(changes, list) else ():
            if isinstance(change, dict):
                self._apply(str(change.get("type", "")).upper(), change)

    @property
    def columns(self) -> dict[Ref, dict[str, Any]]:
        """The columns that were added or changed, with their new properties."""
        return {self._column(name): props for name, props in self._columns.items()}

    def _apply(self, kind: str, change: Mapping[str, Any]) -> None:
        match kind:
            case "RENAME_TABLE":
                self._rename_table(_word(change, "newName"))
            case "UPDATE_COMMENT":
                self.props["description"] = _word(change, "newComment")
            case "SET_PROPERTY" if key := _word(change, "propertyKey"):
                value = change.get("propertyValue")
                self.props[f"properties.{key}"] = None if value is None else text_of(value)
            case "REMOVE_PROPERTY" if key := _word(change, "propertyKey"):
                self.props[f"properties.{key}"] = None
            case "ADD_INDEX" if name := _word(change, "indexName"):
                self.props |= added_index(change, name)
            case "DELETE_INDEX" if name := _word(change, "indexName"):
                self.props |= deleted_index(name)
            case "DELETE_COLUMN" if name := _word(change, "columnName"):
                self._columns.pop(name, None)
                self.moves.append(Dropped(self._column(name)))
            case "RENAME_COLUMN":
                self._rename_column(_word(change, "oldColumnName"), _word(change, "newColumnName"))
            case _ if kind in _COLUMN_CHANGES:
                if name := _word(change, "columnName"):
                    self._columns.setdefault(name, {}).update(pick_props(change, _COLUMN_CHANGES[kind]))

    def _rename_table(self, name: str | None) -> None:
        if name and name != self.table.name[-1]:
            renamed = Ref("table", (*self.table.name[:-1], name))
            self.moves.append(Renamed(self.table, renamed))
            self.table = renamed

    def _rename_column(self, old: str | None, new: str | None) -> None:
        if old and new and old != new:
            self.moves.append(Renamed(self._column(old), self._column(new)))
            self._columns[new] = self._columns.pop(old, {})

    def _column(self, name: str) -> Ref:
        return Ref("column", (*self.table.name, name))


def _word(change: Mapping[str, Any], key: str) -> str | None:
    value = change.get(key)
    return value if type(value) is str and value else None

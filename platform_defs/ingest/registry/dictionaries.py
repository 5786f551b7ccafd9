"""The system dictionaries: codes that the platform understands, and those that Registry files add."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum

from sqlalchemy import Connection

from platform_defs.ingest.codes import (
    AuthType,
    CursorType,
    Direction,
    EndpointRole,
    Location,
    NamespaceScope,
    NullPolicy,
    Operation,
    PaginationType,
    RepeatedToken,
    Trigger,
)
from platform_defs.ingest.registry.file import DictionaryAlias, DictionaryItem
from platform_defs.ingest.registry.values import UNIT_SECONDS
from platform_defs.store.tables.registry import sys_dict_item, sys_dict_item_alias, sys_dict_type
from platform_defs.store.upsert import upsert

_ALIAS_KEY = ("type_code", "source_system", "external_code")


def _codes_of(kind: type[StrEnum]) -> tuple[str, ...]:
    return tuple(each.value for each in kind)


# type -> its codes: what the compiler can work with
BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "http_method": ("GET", "POST"),
    "ing_operation": _codes_of(Operation),
    "ing_cursor_type": _codes_of(CursorType),
    "ing_namespace_scope": _codes_of(NamespaceScope),
    "ing_direction": _codes_of(Direction),
    "ing_trigger": _codes_of(Trigger),
    "endpoint_role": _codes_of(EndpointRole),
    "pagination_mode": _codes_of(PaginationType),
    "repeated_token": _codes_of(RepeatedToken),
    "auth_type": _codes_of(AuthType),
    "param_location": _codes_of(Location),
    "null_policy": _codes_of(NullPolicy),
    "window_mode": ("CALENDAR",),
    "window_unit": tuple(UNIT_SECONDS),
    "calendar_align": ("min", "hour", "day", "week"),
    "backoff_policy": ("exponential_jitter",),
    "lifecycle_status": ("ACTIVE", "DEPRECATED", "RETIRED"),
}


def seed_dictionaries(connection: Connection) -> None:
    """Adds built-in codes that are missing; what an operator changed in them stays."""
    items = [DictionaryItem(kind, code, code) for kind, codes in BUILT_IN.items() for code in codes]
    store_dictionaries(connection, {kind: kind for kind in BUILT_IN}, items)


def store_dictionaries(connection: Connection, types: Mapping[str, str], items: Sequence[DictionaryItem]) -> None:
    """Adds types and items that are missing."""
    upsert(
        connection,
        sys_dict_type,
        [{"type_code": kind, "type_name": name} for kind, name in types.items()],
        key=["type_code"],
        update="nothing",
    )
    rows = [
        {
            "type_code": item.type_code,
            "item_code": item.item_code,
            "item_name": item.item_name,
            "display_order": (number + 1) * 10,
        }
        for number, item in enumerate(items)
    ]
    upsert(connection, sys_dict_item, rows, key=["type_code", "item_code"], update="nothing")


def store_aliases(connection: Connection, aliases: Sequence[DictionaryAlias]) -> None:
    """A source has one code for an item; the file's is the one that holds."""
    upsert(connection, sys_dict_item_alias, [asdict(alias) for alias in aliases], key=_ALIAS_KEY)

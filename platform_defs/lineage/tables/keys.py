"""The asset key of a table in lineage, and the name of its group."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from platform_defs.canonical import sha256_hex
from platform_defs.lineage.facts import Ref, name_props

PREFIX = "lineage"
# The first part of the keys of arrivals' tables.
ARRIVALS_PREFIX = "tables"
# Dagster stores an asset key in 512 characters, as JSON; this leaves room for all four parts.
MAX_PART = 160
_CUT = 80
_NO_LETTERS = re.compile(r"[^A-Za-z0-9]+")
_GROUP_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Table:
    """A logical table: what events call by physical names and by symlinks is one table here, as it is in the graph."""

    tenant_id: int
    namespace: str
    name: str


def table_of(tenant_id: int, ref: Ref) -> Table:
    """The table as people write it: namespace and qualified name."""
    props = name_props(ref)
    return Table(tenant_id, props.get("namespace", ref.name[0]), props.get("qualifiedName", ".".join(ref.name[1:])))


def asset_key_of(table: Table, arrivals_namespace: str = "") -> list[str]:
    """The parts of the table's asset key. Different tables have different keys.

    A table of the namespace of arrivals has the key that arrivals give it, so that both are one asset, of all tenants.
    """
    known_by_arrivals = _name_for_arrivals(table, arrivals_namespace)
    if known_by_arrivals is not None:
        return [ARRIVALS_PREFIX, known_by_arrivals]
    return [PREFIX, str(table.tenant_id), _key_part(table.namespace), _key_part(table.name)]


def groups_of(namespaces: Iterable[tuple[int, str, str]]) -> dict[tuple[int, str, str], str]:
    """A group per tenant and namespace, for tuples of the tenant's id and code and the namespace.

    Dagster allows only letters, digits and `_` in its name. Where that makes two names the same, they end in a hash.
    """
    by_words: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for one in sorted(set(namespaces)):
        _, code, namespace = one
        words = _NO_LETTERS.sub("_", f"{code} {namespace}").strip("_")[:_GROUP_CHARACTERS] or PREFIX
        by_words[words].append(one)
    return {
        one: words if len(same) == 1 else f"{words}_{sha256_hex(f'{one[0]} {one[2]}')[:6]}"
        for words, same in by_words.items()
        for one in same
    }


def _name_for_arrivals(table: Table, namespace: str) -> str | None:
    """The name without what the namespace of arrivals says: `mysql://dw:3306/sales` says the schema too."""
    if not namespace:
        return None
    name = table.name if table.namespace == namespace else None
    if namespace.startswith(f"{table.namespace}/"):
        schema = namespace.removeprefix(f"{table.namespace}/").strip("/").replace("/", ".")
        if table.name.startswith(f"{schema}."):
            name = table.name.removeprefix(f"{schema}.")
    # Arrivals write their names into keys as they are: a name that would be escaped stays a table of lineage.
    return name if name and _key_part(name) == name else None


def _key_part(text: str) -> str:
    """The text with `://` as `~~` and other characters than letters, digits, `_`, `.` and `-` as `~` and their bytes.

    The Dagster UI decodes percent signs twice and takes slashes for the next part, so neither can be in a key.
    """
    if not text:
        return "~_"
    # a browser removes `.` and `..` from a path
    kept = "_-" if set(text) == {"."} else "_.-"
    escaped = "~~".join(
        "".join(c if c.isalnum() or c in kept else _escape(c) for c in part) for part in text.split("://")
    )
    if len(json.dumps(escaped)) - 2 <= MAX_PART:
        return escaped
    cut = escaped[:_CUT]
    while len(json.dumps(cut)) - 2 > _CUT:
        cut = cut[: len(cut) // 2]
    # two hex digits or another `~` follow every `~` of an escape, so `~h` cannot be part of one
    return f"{cut}~h{sha256_hex(text)}"


def _escape(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))

"""Statements as JSON: what is stored of them, the digest that tells whether one was made before, what they claim."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from platform_defs.canonical import canonical_hash
from platform_defs.lineage.facts import Exists, Linked, Ref, Statement

DERIVES_FROM = "DERIVES_FROM"
# Caches of the digests, tables and claims of statements that are being merged, by the identity of their encoding. Each
# entry holds the encoding itself, so that its identity cannot be given to another one.
_DIGESTS: dict[int, tuple[dict[str, Any], str]] = {}
_TABLES: dict[int, tuple[Mapping[str, Any], "Tables"]] = {}
_ITEMS: dict[int, tuple[Mapping[str, Any], list[tuple[list[Any], "ClaimKey"]]]] = {}
MAX_DIGESTS = 1000
# claims of wider statements are not kept, because they would fill the memory
MAX_ITEMS = 200
# how many columns and edges the shared encodings may have together
MAX_SHARED = 50_000


class ClaimKey(NamedTuple):
    """What is claimed: a column (source alone; the type is "written" or "read") or an edge."""

    type: str
    source: Ref
    target: Ref | None = None


class Tables(NamedTuple):
    """The tables that a statement names; all: with those that it only reads."""

    outputs: frozenset[Ref]
    written: frozenset[Ref]
    read: frozenset[Ref]
    lineage: frozenset[Ref]
    all: frozenset[Ref]


def digest_of(statement: Statement) -> str:
    """The same for all statements that claim the same."""
    body = encode(statement)
    if (known := _DIGESTS.get(id(body))) is not None and known[0] is body:
        return known[1]
    digest = digest_of_body(body)
    if len(_DIGESTS) > MAX_DIGESTS:
        _DIGESTS.clear()
    _DIGESTS[id(body)] = (body, digest)
    return digest


def digest_of_body(body: Mapping[str, Any]) -> str:
    return canonical_hash(body)[:16]


class SharedBodies:
    """Encodings that were read from the graph lately, by digest: one object for each, which nobody may change.

    What is known of an encoding is known by its identity, so that it need not be found anew for every group.
    """

    def __init__(self) -> None:
        self._bodies: dict[str, dict[str, Any]] = {}
        self._size = 0

    def share(self, digest: str, body: dict[str, Any]) -> dict[str, Any]:
        """The object that stands for this encoding in the whole process."""
        known = self._bodies.get(digest)
        if known is not None:
            return known
        if self._size > MAX_SHARED:
            self._bodies, self._size = {}, 0
        self._bodies[digest] = body
        self._size += 1 + len(body["columns"]) + len(body["links"])
        return body


SHARED = SharedBodies()


def tables_of(body: Mapping[str, Any]) -> Tables:
    if (known := _TABLES.get(id(body))) is not None and known[0] is body:
        return known[1]
    outputs, written, read, lineage, inputs = (
        frozenset(map(table_ref, body[kind])) for kind in ("outputs", "written", "read", "lineage", "inputs")
    )
    tables = Tables(outputs, written, read, lineage, outputs | read | lineage | inputs)
    if len(_TABLES) > MAX_DIGESTS:
        _TABLES.clear()
    _TABLES[id(body)] = (body, tables)
    return tables


def table_ref(name: Iterable[str]) -> Ref:
    return _table(tuple(name))


@lru_cache(maxsize=1 << 14)
def _table(name: tuple[str, ...]) -> Ref:
    return Ref("table", name)


def encode(statement: Statement) -> dict[str, Any]:
    """JSON with the tables that are named (outputs) and those whose columns or lineage are (the other keys)."""
    if statement.encoded:
        return statement.encoded
    body: dict[str, Any] = {
        "outputs": sorted(list(table.name) for table in statement.outputs),
        "written": _tables_of(column.ref for column in statement.written),
        "read": _tables_of(column.ref for column in statement.read),
        "inputs": sorted(list(link.source.name) for link in statement.links if link.type == "INPUT_OF"),
        "lineage": _tables_of(link.source for link in statement.links if link.type == DERIVES_FROM),
        "columns": sorted(
            (
                [kind, list(column.ref.name), _props(column)]
                for kind, columns in (("written", statement.written), ("read", statement.read))
                for column in columns
            ),
            key=lambda item: (item[0], item[1]),
        ),
        "links": sorted(
            (_encode_link(link) for link in statement.links), key=lambda item: (item[0], item[1:3], item[3:5])
        ),
    }
    statement.encoded.update(body)
    return statement.encoded


def _props(column: Exists) -> dict[str, Any]:
    return {name: value for name, value in column.props.items() if name != "name" and value is not None}


def _encode_link(link: Linked) -> list[Any]:
    return [
        link.type,
        link.source.kind,
        list(link.source.name),
        link.target.kind,
        list(link.target.name),
        dict(link.props),
    ]


def _tables_of(refs: Iterable[Ref]) -> list[list[str]]:
    names = {(ref.parent if ref.kind == "column" and ref.parent is not None else ref).name for ref in refs}
    return sorted(list(name) for name in names)


def decode(body: Mapping[str, Any]) -> Iterator[tuple[ClaimKey, dict[str, Any]]]:
    """What the statement claims, and with which properties."""
    return ((key, item[-1]) for item, key in items(body))


def items(body: Mapping[str, Any]) -> list[tuple[list[Any], ClaimKey]]:
    """The columns and links of the statement as they are encoded, each with what it claims."""
    if (known := _ITEMS.get(id(body))) is not None and known[0] is body:
        return known[1]
    found = [(column, ClaimKey(column[0], Ref("column", tuple(column[1])))) for column in body["columns"]]
    for link in body["links"]:
        type, from_kind, from_name, to_kind, to_name, _ = link
        found.append((link, ClaimKey(type, Ref(from_kind, tuple(from_name)), Ref(to_kind, tuple(to_name)))))
    if len(found) <= MAX_ITEMS:
        if len(_ITEMS) > MAX_DIGESTS:
            _ITEMS.clear()
        _ITEMS[id(body)] = (body, found)
    return found

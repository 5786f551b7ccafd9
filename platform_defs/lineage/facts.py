"""Facts: the statements that an event makes about the asset graph, which the merge (merge/) combines into one graph.

Extraction (extract/) produces facts and does not know the graph; the merge consumes facts and does not know
OpenLineage. Facts refer to assets by qualified names, so an asset's node id follows from the event alone. Every fact
has the version of its event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from platform_defs.canonical import canonical_hash
from platform_defs.graph.asset_kinds import ASSET_KINDS

# The kind of a ref that is no asset but makes statements about assets, such as a job. It is stored, but never shown.
SPEAKER = "speaker"


@lru_cache(maxsize=1 << 16)
def _id(kind: str, name: tuple[str, ...]) -> str:
    """The node id. Cached, because the merge needs the same few thousand ids again and again."""
    return f"{kind}:{canonical_hash(list(name))[:40]}"


@dataclass(frozen=True, slots=True)
class Ref:
    """Refers to an asset by its kind, which is also the prefix of its node id, and its qualified name.

    The name of a catalog is (metalake, catalog); a schema, a table and a column have one part more each. The name of an
    sql is a hash of its text or of its job; of a metric, wordroot, modifier, unit or valuedomain the code; of a tag the
    tag's name.
    """

    kind: str
    name: tuple[str, ...]
    # computed once, because the merge reads them hundreds of times per event
    id: str = field(init=False, compare=False, repr=False)
    parent: "Ref | None" = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", _id(self.kind, self.name))
        object.__setattr__(self, "parent", _parent(self.kind, self.name))

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Ref) and self.id == other.id)


@lru_cache(maxsize=1 << 16)
def _parent(kind: str, name: tuple[str, ...]) -> Ref | None:
    if kind == SPEAKER:
        return None
    above = ASSET_KINDS[kind].above
    return None if above is None else Ref(above, name[:-1])


# Neo4j refuses to index more than 8,167 bytes, with the tenant's id and a few of its own among them.
MAX_NAME_BYTES = 8000


def name_props(ref: Ref) -> dict[str, str]:
    """Properties of tables and columns that follow from the name: `namespace`, and `qualifiedName` as people write it.

    Parts that only fill in for a missing catalog or schema are left out; a path stays a path.
    """
    if ref.kind not in ("table", "column"):
        return {}
    namespace, catalog, schema, *rest = ref.name
    parts = [] if catalog == namespace else [catalog]
    if schema.endswith("/"):
        rest = [f"{'' if schema == './' else schema}{rest[0]}", *rest[1:]]
    else:
        parts.append(schema)
    qualified = ".".join([*parts, *rest])
    props = {"namespace": namespace, "qualifiedName": qualified}
    return {name: text for name, text in props.items() if len(text.encode()) <= MAX_NAME_BYTES}


@dataclass(frozen=True, slots=True)
class Exists:
    """The asset exists, with this graph label and these properties. A property whose value is None is removed.

    A property `properties.KEY` is one entry of the map `properties`; each entry has its own version. all_entries: the
    map has only the entries given here, so older ones are removed. (Columns have no such map.)
    """

    ref: Ref
    label: str
    props: Mapping[str, Any] = field(default_factory=dict)
    all_entries: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """The asset and all assets below it were dropped: older facts about them do not count any more."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Renamed:
    """The table or column `ref` is called `new` from now on; older facts about it and all below it move along."""

    ref: Ref
    new: Ref


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """The table has exactly these columns, in this order; other columns are dropped."""

    table: Ref
    columns: tuple[Exists, ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """There is an edge of this type from source to target, with these properties."""

    type: str
    source: Ref
    target: Ref
    props: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unlinked:
    """There is no edge of this type from source to target any more."""

    type: str
    source: Ref
    target: Ref


@dataclass(frozen=True, slots=True)
class LinkSet:
    """The source has exactly these outgoing edges of these types; other ones are removed."""

    source: Ref
    types: frozenset[str]
    links: tuple[Linked, ...]


@dataclass(frozen=True, slots=True)
class ColumnsUnlinked:
    """All outgoing edges of these types are removed from all columns of the table, whichever columns it has."""

    table: Ref
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class Statement:
    """What one event of a job's run says. It counts as long as the job's newer runs do not replace it.

    speaker: the job, or the producer of dataset events about one table. completes: the event is a COMPLETE.
    written and read: columns of output and input tables, with their properties. links: edges of the types INPUT_OF,
    OUTPUT_TO and DERIVES_FROM. outputs: all output tables. names_dataset: the event has any dataset at all.

    The merge of statements is described in merge/speech/speakers.py.
    """

    speaker: Ref
    run: str
    completes: bool
    names_dataset: bool
    outputs: tuple[Ref, ...] = ()
    written: tuple[Exists, ...] = ()
    read: tuple[Exists, ...] = ()
    links: tuple[Linked, ...] = ()
    # filled by merge/speech/statement_bodies.py, which needs the encoding several times; it names no run
    encoded: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def of_run(self, run: str) -> "Statement":
        """The same statement in another run; both share their encoding."""
        same = replace(self, run=run)
        object.__setattr__(same, "encoded", self.encoded)
        return same


Fact: TypeAlias = Exists | Dropped | Renamed | ColumnSet | Linked | Unlinked | LinkSet | ColumnsUnlinked | Statement


def weight_of(fact: Fact) -> int:
    """How many nodes and edges the fact speaks of."""
    match fact:
        case ColumnSet(_, columns):
            return 1 + len(columns)
        case LinkSet(_, _, links):
            return 1 + len(links)
        case Statement():
            return 1 + len(fact.written) + len(fact.read) + len(fact.links)
    return 1


def moves_assets(fact: Fact) -> bool:
    """Whether it drops or renames: what that changes in the graph does not follow from the size of the event."""
    return isinstance(fact, Dropped | Renamed)


def reaches_far(fact: Fact) -> bool:
    """Whether it may change thousands of nodes and edges: a drop of a schema or catalog, or the rename of a table."""
    match fact:
        case Dropped(ref):
            return ref.kind in ("schema", "catalog")
        case Renamed(ref, _):
            return ref.kind == "table"
    return False

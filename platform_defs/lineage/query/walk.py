"""Follows the lineage of a table or a column up or down, level by level, in two queries a level.

Tables are connected by jobs (INPUT_OF, OUTPUT_TO), columns by DERIVES_FROM. Each table or column is visited once, so a
cycle ends by itself. An output table may depend on a column as a whole, because that column decided which rows there
are: then all of its columns do.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import GraphStore
from platform_defs.lineage.query.names import Asset, asset_of

MAX_DEPTH = 100
# edges that one level may have; more than that nobody can read
MAX_EDGES = 20_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step away from the root, from `near` to `far`; far is None where a job is all that is known beyond.

    via: the job between two tables, or how the column is derived; empty if unknown.
    """

    near: str
    far: str | None
    via: str


@dataclass(slots=True)
class Walk:
    """What a walk found.

    assets: by id, the root first and then level by level. steps: away from the root. more: assets at the last level
    beyond which there is more. truncated: the limit was reached, and something is missing.
    """

    root: Asset
    upstream: bool
    assets: dict[str, Asset] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    more: set[str] = field(default_factory=set)
    truncated: bool = False


# (near, far or None, the job's node or the words for the edge)
_Hop = tuple[str, str | None, str]


def walk(store: GraphStore, root: Asset, *, upstream: bool, depth: int, limit: int) -> Walk:
    """Everything up to `depth` steps from the root, at most `limit` tables or columns."""
    found = Walk(root, upstream)
    follow = _follow_tables if root.kind == "table" else _follow_columns
    level, seen, hops = [root.id], {root.id: None}, list[_Hop]()
    # one level further than asked, to know where there is more
    for distance in range(depth + 1):
        new, cut = follow(store, level, upstream)
        found.truncated |= cut
        level = []
        for hop in new:
            near, far, _ = hop
            if far is None or far in seen:
                hops.append(hop)
            elif distance == depth:
                found.more.add(near)
            elif len(seen) == limit:
                found.truncated = True
            else:
                seen[far] = None
                level.append(far)
                hops.append(hop)
        if not level:
            break
    _name(store, found, list(seen), hops)
    return found


def _name(store: GraphStore, found: Walk, ids: Sequence[str], hops: Sequence[_Hop]) -> None:
    """Reads the names of everything at once."""
    jobs = {via for _, _, via in hops if via.startswith("sql:")}
    nodes = store.nodes([*ids, *jobs])
    found.assets = {id: asset_of(nodes[id]) for id in ids if id in nodes}
    found.assets.setdefault(found.root.id, found.root)
    named = (Step(near, far, job_name(nodes.get(via)) if via in jobs else via) for near, far, via in hops)
    known = dict.fromkeys(
        step for step in named if step.near in found.assets and (step.far is None or step.far in found.assets)
    )
    # by name, because the stores' own order is that of hashes
    found.steps = sorted(known, key=lambda step: (step.far is None, _shown(found, step), step.via))


def _shown(found: Walk, step: Step) -> tuple[str, str]:
    if step.far is None:
        return "", ""
    asset = found.assets[step.far]
    return asset.name, asset.namespace


def job_name(node: Node | None) -> str:
    """A job as people name it: its namespace and its name."""
    if node is None:
        return ""
    parts = (node.props.get("jobNamespace"), node.props.get("jobName"))
    return "/".join(str(part) for part in parts if part)


def _follow_tables(store: GraphStore, tables: Sequence[str], upstream: bool) -> tuple[list[_Hop], bool]:
    """From tables to jobs and from there to tables: against the direction of the edges if upstream."""
    near, far = ("OUTPUT_TO", "INPUT_OF") if upstream else ("INPUT_OF", "OUTPUT_TO")
    to_jobs = store.follow(tables, [near], forward=not upstream, limit=MAX_EDGES)
    pairs = [_ends(edge, upstream) for edge in to_jobs]
    jobs = list(dict.fromkeys(job for _, job in pairs))
    to_tables = store.follow(jobs, [far], forward=not upstream, limit=MAX_EDGES) if jobs else []
    beyond = _grouped(_ends(edge, upstream) for edge in to_tables)
    cut = len(to_jobs) == MAX_EDGES or len(to_tables) == MAX_EDGES
    return [(table, other, job) for table, job in pairs for other in beyond.get(job, [None])], cut


def _ends(edge: Edge, upstream: bool) -> tuple[str, str]:
    """The end that is nearer to the root, and the other one."""
    return (edge.to_id, edge.from_id) if upstream else (edge.from_id, edge.to_id)


def _follow_columns(store: GraphStore, level: Sequence[str], upstream: bool) -> tuple[list[_Hop], bool]:
    tables = [id for id in level if id.startswith("table:")]
    columns = [id for id in level if not id.startswith("table:")]
    asked = columns if upstream else tables
    owned = store.follow(asked, ["HAS_COLUMN"], forward=not upstream, limit=MAX_EDGES) if asked else []
    # up: a column also derives from what its whole table derives from; down: of a whole table all columns count
    stands_for = _grouped((edge.from_id, edge.to_id) if upstream else (edge.to_id, edge.from_id) for edge in owned)
    for id in level:
        stands_for.setdefault(id, []).insert(0, id)
    edges = store.follow(sorted(stands_for), ["DERIVES_FROM"], forward=upstream, limit=MAX_EDGES)
    hops: list[_Hop] = []
    for edge in edges:
        at, other = (edge.from_id, edge.to_id) if upstream else (edge.to_id, edge.from_id)
        hops += [(near, other, _derivation(edge)) for near in stands_for[at]]
    return hops, len(edges) == MAX_EDGES or len(owned) == MAX_EDGES


def _derivation(edge: Edge) -> str:
    words = [str(edge.props.get(name, "")) for name in ("transformationType", "transformationSubtype")]
    whole = ["whole table"] if edge.from_id.startswith("table:") else []
    return " ".join([word.lower() for word in words if word] + whole)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: Mapping[str, list[str]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)

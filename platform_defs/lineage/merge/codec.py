"""Encodes remembered facts on nodes and edges, as JSON in the hidden property `_facts`, and decodes them again."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from platform_defs.canonical import canonical_json, sorted_json
from platform_defs.graph.model import Edge, EdgeKey, Node
from platform_defs.graph.vocabulary import GONE_PREFIX, KNOWLEDGE, TOMBSTONE, vector_dimension
from platform_defs.lineage.facts import Ref, name_props
from platform_defs.lineage.merge.speech.crowds import by_precedence
from platform_defs.lineage.merge.speech.runs import Run, Trace
from platform_defs.lineage.merge.speech.speakers import SpeakerState
from platform_defs.lineage.merge.speech.statement_bodies import SHARED
from platform_defs.lineage.merge.state import (
    AFTER_ALL,
    BEFORE_ALL,
    LAST_TYPE,
    NAMED,
    NEVER,
    NO_CROWD,
    TYPE,
    Claim,
    ColumnsState,
    Crowd,
    EdgeState,
    IncomingRename,
    NodeState,
    Stamp,
)
from platform_defs.lineage.version import Version

FACTS = "_facts"
COUNT = "executionCount"
# A column stores this in place of the stamp of its table's newest ColumnSet. When the same set is stated again, only
# the stamp on the table has to be written.
OF_SET = "="
# begins the names of properties that are entries of the map `properties`
ENTRY = "properties."


def read_facts(node: Node) -> dict[str, Any]:
    """The content of the hidden property; empty if the node has none."""
    facts: dict[str, Any] = orjson.loads(node.props.get(FACTS, "{}"))
    return facts


def read_node(node: Node, set_at: Stamp, facts: dict[str, Any] | None = None) -> NodeState:
    """What is remembered in a stored node.

    set_at: for a column, the stamp of its table's newest ColumnSet. facts: what `read_facts` returned, if known.
    """
    facts = read_facts(node) if facts is None else facts
    kind = next((label for label in node.labels if label != KNOWLEDGE and not vector_dimension(label)), None)
    shown = {name: value for name, value in node.props.items() if not name.startswith("_")}
    ref = _ref(node.id, facts["name"]) if "name" in facts else None
    if ref is not None and ref.kind in NAMED:
        for name in ("name", *name_props(ref)):
            shown.pop(name, None)
    entries = (
        orjson.loads(shown.pop("properties", "{}"))
        if any(name.startswith(ENTRY) for names in facts.get("props", {}).values() for name in names)
        else {}
    )
    props: dict[str, tuple[Stamp, Any]] = {}
    for stamp, names in facts.get("props", {}).items():
        for name in names:
            value = entries.get(name.removeprefix(ENTRY)) if name.startswith(ENTRY) else shown.pop(name, None)
            props[name] = (set_at if stamp == OF_SET else Stamp(stamp), value)
    if LAST_TYPE in facts:
        stamp, value = facts[LAST_TYPE]
        props[LAST_TYPE] = (Stamp(stamp), value)
        shown.pop(TYPE, None)
    claims = {name: Claim(Stamp(at), given) for name, (at, given) in facts.get("claims", {}).items()}
    for claim in claims.values():
        for name in claim.props:
            shown.pop(name, None)
    count = shown.pop(COUNT, facts.get("count"))
    columns = facts.get("columns")
    return NodeState(
        ref=ref,
        label=None if kind == TOMBSTONE or "label" not in facts else kind,
        label_at=_stamp(facts, "label", set_at),
        exists_at=_stamp(facts, "exists", set_at),
        named_in=_read_naming(facts),
        floor=Stamp(facts.get("floor", NEVER)),
        props=props,
        columns=None if columns is None else ColumnsState(Stamp(columns[0]), columns[1], columns[2]),
        entries_at=Stamp(facts.get("entries", NEVER)),
        link_sets=facts.get("sets", {}),
        column_link_sets=facts.get("columnSets", {}),
        renames={Stamp(stamp): _ref(node.id, name) for stamp, name in facts.get("renames", {}).items()},
        incoming_renames=[IncomingRename(*incoming) for incoming in facts.get("arrivals", [])],
        column_renamed_at=Stamp(facts.get("columnRenamed", NEVER)),
        count=count,
        claims=claims,
        crowd=_read_crowd(facts),
        crowd_ended_at=Stamp(facts.get("crowdEnded", NEVER)),
        unclaimed_at=Stamp(facts.get("unclaimed", NEVER)),
        speaker=read_speaker(facts["speaker"]) if "speaker" in facts else None,
        foreign=shown,
        vector=next((label for label in node.labels if vector_dimension(label)), None),
    )


def written_node(id: str, state: NodeState, label: str | None, set_at: Stamp) -> Node:
    """The node as the store should hold it; with the label None it is a tombstone."""
    props: dict[str, Any] = {FACTS: _text(_facts(state, label, set_at))}
    if label is None:
        return Node(id, {TOMBSTONE, KNOWLEDGE} | ({state.vector} if state.vector else set()), props)
    props |= state.foreign
    if LAST_TYPE in state.props:
        props[TYPE] = state.props[LAST_TYPE][1]
    for claim in reversed(by_precedence(state.claims)):
        props |= claim.props
    entries = {}
    for name, (_, value) in state.props.items():
        if name == LAST_TYPE:
            continue
        if value is not None and name.startswith(ENTRY):
            entries[name.removeprefix(ENTRY)] = value
        elif value is not None:
            props[name] = value
        else:
            props.pop(name, None)
    if entries:
        props["properties"] = canonical_json(entries)
    if state.ref is not None and state.ref.kind in NAMED:
        props["name"] = state.ref.name[-1]
        props |= name_props(state.ref)
    if state.count is not None:
        props[COUNT] = state.count
    return Node(id, {label, KNOWLEDGE} | ({state.vector} if state.vector else set()), props)


def read_edge(edge: Edge) -> tuple[EdgeKey, EdgeState]:
    """The key of the edge with its visible type, and what is remembered of it."""
    facts: dict[str, Any] = orjson.loads(edge.props.get(FACTS, "{}"))
    hidden = edge.type.startswith(GONE_PREFIX)
    claims = {name: Claim(Stamp(at), given) for name, (at, given) in facts.get("claims", {}).items()}
    own = hidden or claims
    props = facts.get("props", {}) if own else {k: v for k, v in edge.props.items() if not k.startswith("_")}
    state = EdgeState(
        at=Stamp(facts.get("at", NEVER)),
        linked=not facts.get("cut", False),
        props=dict(props),
        first=Stamp(facts.get("first", NEVER)),
        claims=claims,
        crowd=_read_crowd(facts),
    )
    return EdgeKey(edge.type.removeprefix(GONE_PREFIX), edge.from_id, edge.to_id), state


def written_edge(key: EdgeKey, state: EdgeState, *, shown: bool) -> Edge:
    """The edge as the store should hold it; one that is not shown has a hidden type (GONE_PREFIX)."""
    facts: dict[str, Any] = {"at": state.at} if state.at else {}
    if not state.linked:
        facts["cut"] = True
    if state.first:
        facts["first"] = state.first
    if state.props and (state.claims or not shown):
        facts["props"] = state.props
    if state.claims:
        facts["claims"] = {name: [claim.at, claim.props] for name, claim in state.claims.items()}
    if state.crowd.size:
        facts["crowd"] = list(state.crowd)
    if shown:
        own = state.at > NEVER and state.linked
        props = state.props if own or not state.claims else by_precedence(state.claims)[0].props
        return Edge(*key, {**props, **({FACTS: _text(facts)} if facts else {})})
    return Edge(f"{GONE_PREFIX}{key.type}", key.from_id, key.to_id, {FACTS: _text(facts)} if facts else {})


def plain(props: Mapping[str, Any]) -> dict[str, Any]:
    """Properties in the form in which both stores return them, so that unchanged ones compare as equal."""
    return {name: _plain(value) for name, value in props.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return canonical_json(value)
    return list(value) if isinstance(value, tuple) else value


def _text(facts: Mapping[str, Any]) -> str:
    return sorted_json(facts).decode()


def _facts(state: NodeState, label: str | None, set_at: Stamp) -> dict[str, Any]:
    """The content of the hidden property `_facts`, without what is empty. label None: the node is a tombstone."""

    def short(stamp: Stamp) -> str:
        return OF_SET if stamp and stamp == set_at else stamp

    by_stamp: dict[str, list[str]] = {}
    for name in sorted(state.props.keys() - {LAST_TYPE}):
        by_stamp.setdefault(short(state.props[name][0]), []).append(name)
    columns = state.columns
    is_table = state.ref is not None and state.ref.kind == "table"
    facts = {
        "name": None if state.ref is None else list(state.ref.name),
        "label": short(state.label_at) if label is not None else None,
        "exists": short(state.exists_at),
        "named": sorted(state.named_in or ()),
        # a table that exists and has no list was named by more events than are remembered
        "unnamed": True if is_table and state.named_in is None and not state.exists_at else None,
        "floor": state.floor,
        "props": by_stamp,
        LAST_TYPE: state.props.get(LAST_TYPE),
        "columns": None if columns is None else [columns.at, columns.digest, columns.lacked],
        "entries": state.entries_at,
        "sets": state.link_sets,
        "columnSets": state.column_link_sets,
        "renames": {stamp: list(ref.name) for stamp, ref in state.renames.items()},
        "arrivals": [[one.at, one.floor, one.mixed, one.moved] for one in state.incoming_renames],
        "columnRenamed": state.column_renamed_at,
        "count": state.count if label is None else None,
        "claims": {name: [claim.at, claim.props] for name, claim in state.claims.items()},
        "crowd": list(state.crowd) if state.crowd.size else None,
        "crowdEnded": state.crowd_ended_at,
        "unclaimed": state.unclaimed_at if LAST_TYPE in state.props else None,
        "speaker": None if state.speaker is None else written_speaker(state.speaker),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {}, [])}


def written_speaker(speaker: SpeakerState) -> dict[str, Any]:
    """What is stored of a speaker. Its folded runs are not (speech/past_runs.py)."""
    facts = {
        "bodies": speaker.bodies,
        "runs": {name: [run.completed, run.names_dataset, run.said] for name, run in speaker.runs.items()},
        "floor": speaker.floor,
        "lineageFloors": speaker.lineage_floors,
        # the oldest first, as pairs: the keys of JSON objects are written in their own order
        "past": [[name, *trace] for name, trace in speaker.past.items()],
        "pastUntil": speaker.past_until,
        "forgotten": speaker.forgotten_at,
        "lacksCounting": speaker.lacks_counting,
    }
    return {name: value for name, value in facts.items() if value}


def read_speaker(facts: Mapping[str, Any]) -> SpeakerState:
    return SpeakerState(
        bodies={digest: SHARED.share(digest, body) for digest, body in facts.get("bodies", {}).items()},
        runs={name: Run(Stamp(run[0]), run[1], run[2]) for name, run in facts.get("runs", {}).items()},
        floor=Stamp(facts.get("floor", NEVER)),
        lineage_floors=dict(facts.get("lineageFloors", {})),
        past=_read_past(facts.get("past", [])),
        # earlier releases did not store it
        past_until=Stamp(facts.get("pastUntil", AFTER_ALL if "past" in facts else NEVER)),
        forgotten_at=Stamp(facts.get("forgotten", NEVER)),
        lacks_counting=facts.get("lacksCounting", False),
    )


def _read_naming(facts: Mapping[str, Any]) -> frozenset[Version] | None:
    if "unnamed" in facts or ("exists" in facts and "named" not in facts):
        # more events than are remembered have named it, or an older release did not note them
        return None
    return frozenset(facts.get("named", ()))


def _read_past(facts: Mapping[str, Any] | Sequence[Sequence[Any]]) -> dict[str, Trace]:
    """Earlier releases wrote pairs: the statements of a run that had not completed, None for one that had."""
    written = facts.items() if isinstance(facts, Mapping) else facts
    return {
        name: Trace(Stamp(trace[0]), trace[1])
        if len(trace) == 2
        else Trace(NEVER if trace[0] else BEFORE_ALL, trace[0])
        for name, *trace in written
    }


def _read_crowd(facts: Mapping[str, Any]) -> Crowd:
    return Crowd(*facts["crowd"]) if "crowd" in facts else NO_CROWD


def _stamp(facts: Mapping[str, Any], name: str, set_at: Stamp) -> Stamp:
    stamp = Stamp(facts.get(name, NEVER))
    return set_at if stamp == OF_SET else stamp


def _ref(id: str, name: list[str]) -> Ref:
    return Ref(id.partition(":")[0], tuple(name))

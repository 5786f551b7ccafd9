"""Bounds how many speakers a column or an edge of column lineage remembers, without forgetting what they say.

MAX_CLAIMS speakers are remembered one by one: the first ones by precedence, and for each property the first who gives
it. The others are the *crowd*: only their number is known, the oldest stamp of their claims, and for each property the
first one among them who gives it. That suffices in the usual case, because each speaker knows what it claims itself:

- A speaker of the crowd who takes a claim back makes the crowd smaller by one.
- A drop that is newer than all that was said of the table ends the whole crowd, and one that is older than the crowd
  ends nothing of it. For a drop in between it is not known who spoke before and who after it: NeedsRebuild.
- The properties that are shown come from the first speakers. If those take them back, somebody of the crowd may be the
  next: NeedsRebuild.

An SQL node belongs to one job. So the edges at it have few speakers, and no crowd.
"""

from collections.abc import Iterable, Mapping

from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.state import NO_CROWD, Claim, Crowd, EdgeState, NodeState

READ = ":read"
# what the first speaker says of an edge counts as a whole
_WHOLE = ""


def precedence(name: str) -> str:
    """Claims in this order of their names decide the properties: those of writers come first."""
    return f"{int(name.endswith(READ))}{name}"


def by_precedence(claims: Mapping[str, Claim]) -> list[Claim]:
    return [claims[name] for name in sorted(claims, key=precedence)]


def bound_claims(item: NodeState | EdgeState) -> None:
    """Puts the last claims by precedence into the crowd, if there are more than are remembered one by one."""
    if len(item.claims) <= bounds.MAX_CLAIMS:
        return
    names = sorted(item.claims, key=precedence)
    first_givers = _first_givers(item, names)
    gone = [name for name in names[bounds.MAX_CLAIMS :] if name not in first_givers.values()]
    for name in gone:
        claim = item.claims.pop(name)
        item.crowd = joined_crowds(
            item.crowd, Crowd(1, claim.at, {prop: precedence(name) for prop in _given(item, claim)})
        )


def leave_crowd(item: NodeState | EdgeState) -> None:
    """One of the crowd takes its claim back, or is remembered by itself from now on."""
    crowd = item.crowd
    item.crowd = crowd._replace(size=crowd.size - 1) if crowd.size > 1 else NO_CROWD


def joined_crowds(one: Crowd, other: Crowd) -> Crowd:
    """One crowd in place of two, for a node or edge that becomes one with another."""
    if not one.size or not other.size:
        return one if one.size else other
    first = {
        prop: min(crowd.first[prop] for crowd in (one, other) if prop in crowd.first)
        for prop in {**one.first, **other.first}
    }
    return Crowd(one.size + other.size, min(one.since, other.since), first)


def shows_first(item: NodeState | EdgeState) -> bool:
    """Whether the properties of the claims are known: nobody of the crowd comes before those who give them."""
    if not item.crowd.size:
        return True
    first_givers = _first_givers(item, sorted(item.claims, key=precedence))
    return all(
        prop in first_givers and precedence(first_givers[prop]) < first for prop, first in item.crowd.first.items()
    )


def _first_givers(item: NodeState | EdgeState, names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        for prop in _given(item, item.claims[name]):
            found.setdefault(prop, name)
    return found


def _given(item: NodeState | EdgeState, claim: Claim) -> Iterable[str]:
    return (_WHOLE,) if isinstance(item, EdgeState) else claim.props

"""Rewrites remembered statements of speakers: without what was dropped, or with the names that columns have now."""

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.names import current_name, cut_at, floor, follow, unlinked_at
from platform_defs.lineage.merge.speech.speakers import SpeakerState, is_loaded, newest_stamps
from platform_defs.lineage.merge.speech.statement_bodies import ClaimKey, digest_of_body, items
from platform_defs.lineage.merge.state import Stamp, State


def strike_dead(state: State, speaker: SpeakerState) -> None:
    """Removes from the statements what was dropped after they were made. Made again, they are other statements.

    What is not loaded is taken to be alive. While no name has moved, what is alive of a statement stays so when the
    statement is made again, so that only the first time at which it was made is looked at.
    """
    if not state.names_moved and all(_is_alive(state, key, first) for key, first in speaker.refs()):
        return
    _rewrite(state, speaker, lambda item, key, at: item if _is_alive(state, key, at) else None)


def settle_columns(state: State, speaker: SpeakerState, tables: Set[Ref]) -> None:
    """Calls the columns of these tables in all statements as they are called now: their renames will be forgotten."""

    def now(ref: Ref, at: Stamp) -> list[str]:
        if ref.kind == "column" and ref.parent is not None and is_loaded(state, ref, at):
            column = current_name(state, ref, at)
            if column is not None and column.parent in tables:
                return [*ref.parent.name, column.name[-1]]
        return list(ref.name)

    def renamed(item: list[Any], key: ClaimKey, at: Stamp) -> list[Any]:
        if key.target is None:
            return [item[0], now(key.source, at), *item[2:]]
        return [*item[:2], now(key.source, at), item[3], now(key.target, at), *item[5:]]

    _rewrite(state, speaker, renamed)


def _rewrite(
    state: State, speaker: SpeakerState, change: Callable[[list[Any], ClaimKey, Stamp], list[Any] | None]
) -> None:
    """Puts other items in the place of those of all statements; None leaves the item out."""
    bodies: dict[str, dict[str, Any]] = {}
    for name, run in list(speaker.runs.items()):
        said: dict[str, list[Stamp]] = defaultdict(list)
        for digest, at in run.statements():
            body = speaker.bodies[digest]
            kept: dict[str, list[Any]] = {"columns": [], "links": []}
            for item, key in items(body):
                if (new := change(item, key, at)) is not None:
                    kept["columns" if key.target is None else "links"].append(new)
            if any(kept[kind] != body[kind] for kind in kept):
                body = {**body, **kept}
                digest = digest_of_body(body)
            bodies[digest] = body
            said[digest].append(at)
        newest = {digest: newest_stamps(state, bodies[digest], stamps) for digest, stamps in said.items()}
        speaker.runs[name] = replace(run, said=newest)
    speaker.bodies = bodies


def _is_alive(state: State, key: ClaimKey, at: Stamp) -> bool:
    now: list[Ref] = []
    for ref in (key.source, key.target):
        if ref is None or not is_loaded(state, ref, at):
            continue
        found = follow(state, ref, at)
        if found is None:
            return False
        name, since = found
        if since <= floor(state, name) or (ref is not key.target and since <= unlinked_at(state, name, key.type)):
            return False
        now.append(name)
    return len(now) < 2 or at > cut_at(state, EdgeKey(key.type, now[0].id, now[1].id))

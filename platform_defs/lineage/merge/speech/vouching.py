"""A job that says the same again writes nothing on the tables that it names: its statement vouches that they exist.

Whether a table exists depends on the newest fact that says so. If a job repeats itself, that fact is in what the job is
remembered to have said, so the stamp on the table may be too old, like that of a claim. It is corrected before it
matters: when something is dropped or renamed, and when the job's statement is replaced or forgotten.

A statement vouches only for tables and SQL nodes between which it claims an edge that counts: by that edge whoever
drops the table finds the job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from platform_defs.lineage.facts import Fact, Ref, Statement
from platform_defs.lineage.merge.names import current_name, exists, floor
from platform_defs.lineage.merge.speech.statement_bodies import DERIVES_FROM, digest_of, items
from platform_defs.lineage.merge.speech.unmoved import unmoved_shape
from platform_defs.lineage.merge.state import Stamp, State, path, version_in
from platform_defs.lineage.version import Version

Bodies = Mapping[str, Mapping[str, Any]]
Vouched = frozenset[tuple[Version, Ref]]
NOTHING: Vouched = frozenset()


def vouched_assets(state: State, facts: Sequence[tuple[Stamp, Fact]]) -> Vouched:
    """The assets for which statements of these facts vouch, with the events in which they do.

    Only for facts that drop and rename nothing, and while no name has moved.
    """
    found: set[tuple[Version, Ref]] = set()
    for at, fact in facts:
        if isinstance(fact, Statement) and state.changing.get(fact.speaker.id) is False:
            node = state.find(fact.speaker)
            if node is not None and node.speaker is not None and fact.names_dataset:
                live = unmoved_shape(node.speaker, readers=False).get(digest_of(fact))
                if live is not None and live.links:
                    ends = [
                        end for link in fact.links if link.type != DERIVES_FROM for end in (link.source, link.target)
                    ]
                    found.update((version_in(at), one) for end in ends for one in path(end))
    return frozenset(found)


def say_vouched(state: State, bodies: Bodies, said: Iterable[tuple[str, Stamp]]) -> None:
    """Corrects the stamps of all that these statements vouch for, as far as it is loaded.

    bodies: the statements by digest. said: their digests, with the times at which they were made.
    """
    if not state.names_moved:
        # while no name has moved, a repetition is about the same assets, so that only its newest stamp matters
        said = dict(sorted(said, key=lambda one: one[1])).items()
    for digest, at in said:
        for one in _vouched_by(state, bodies[digest], at):
            node = state.node(one)
            if at > node.exists_at and at > floor(state, one) and exists(state, one):
                node.exists_at = at


def _vouched_by(state: State, body: Mapping[str, Any], at: Stamp) -> Iterator[Ref]:
    for _, key in items(body):
        if key.target is not None and key.type != DERIVES_FROM:
            for end in (key.source, key.target):
                if state.is_loaded(end) and (now := current_name(state, end, at)) is not None:
                    yield from path(now)

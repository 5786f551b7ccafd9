"""Drops facts that a group of events repeats: thousands of runs of the same few jobs state the same few facts."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from platform_defs.graph.vocabulary import HAS_METRIC
from platform_defs.lineage.facts import (
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Fact,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Statement,
    Unlinked,
)
from platform_defs.lineage.merge.rules import NAMED_IN
from platform_defs.lineage.merge.state import Stamp, State, path, version_in
from platform_defs.lineage.version import Version


def without_repeats(facts: Sequence[tuple[Stamp, Fact]]) -> list[tuple[Stamp, Fact]]:
    """Each fact once, as it was said last, which says all that the others did.

    Not so where something is dropped or renamed in between, and not for HAS_METRIC, of which the first counts too.
    """
    if any(isinstance(fact, Dropped | Renamed) for _, fact in facts):
        return list(facts)
    newest: list[tuple[Stamp, Fact]] = []
    said: dict[Hashable, list[Fact]] = defaultdict(list)
    for at, fact in reversed(facts):
        same_subject = said[_subject(fact)]
        if fact not in same_subject or _puts_under(fact):
            same_subject.append(fact)
            newest.append((at, fact))
    return newest[::-1]


def note_naming_events(state: State, facts: Iterable[tuple[Stamp, Fact]]) -> None:
    """Notes of all facts, repeated ones too, which events named a table and what is above it."""
    naming: dict[Ref, set[Version]] = defaultdict(set)
    for at, fact in facts:
        if isinstance(fact, Exists | ColumnSet):
            version = version_in(at)
            for ref in path(fact.ref if isinstance(fact, Exists) else fact.table):
                if version in naming[ref]:
                    break
                naming[ref].add(version)
    for ref, versions in naming.items():
        if ref.kind in NAMED_IN and (node := state.find(ref)) is not None:
            node.name_in(versions)


def _puts_under(fact: Fact) -> bool:
    links = fact.links if isinstance(fact, LinkSet) else (fact,)
    return any(isinstance(link, Linked) and link.type == HAS_METRIC for link in links)


def _subject(fact: Fact) -> Hashable:
    match fact:
        case Exists(ref) | Dropped(ref) | Renamed(ref):
            return type(fact), ref
        case ColumnSet(table) | ColumnsUnlinked(table):
            return type(fact), table
        case Linked(type_, source, target) | Unlinked(type_, source, target):
            return type(fact), type_, source, target
        case LinkSet(source):
            return LinkSet, source
        case Statement(speaker, run):
            return Statement, speaker, run

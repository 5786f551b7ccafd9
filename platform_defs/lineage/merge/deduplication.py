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
    """Each fact once, with its newest stamp.

    If any fact drops or renames something, all facts are returned, because a repetition after that adds something.
    HAS_METRIC is always kept, because its oldest stamp counts too.
    """
    if any(isinstance(fact, Dropped | Renamed) for _, fact in facts):
        return list(facts)
    newest: list[tuple[Stamp, Fact]] = []
    said: dict[Hashable, list[Fact]] = defaultdict(list)
    for at, fact in reversed(facts):
        same_subject = said[_subject(fact)]
        if fact not in same_subject or _links_metric(fact):
            same_subject.append(fact)
            newest.append((at, fact))
    return newest[::-1]


def note_naming_events(state: State, facts: Iterable[tuple[Stamp, Fact]]) -> None:
    """Notes which events named a table, its schema and its catalog. facts: all of them, repeated ones too."""
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
            node.add_naming_events(versions)


def _links_metric(fact: Fact) -> bool:
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

"""Runs of a speaker: those that are remembered one by one, and those that are folded (past_runs.py)."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.names import current_name
from platform_defs.lineage.merge.speech.statement_bodies import table_ref, tables_of
from platform_defs.lineage.merge.state import NEVER, Stamp, State

Bodies = dict[str, dict[str, Any]]
# In place of a run's name: the statements of all uncompleted runs that are not remembered one by one.
UNFINISHED = ""
# of a stamp: the time of its event
TIME_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Run:
    """said: the stamps of each statement, by digest: only the newest one, unless names have moved in between.

    A run never changes, so that the states of a speaker before and after a statement share all other runs.
    """

    completed: Stamp = NEVER
    names_dataset: bool = False
    said: Mapping[str, list[Stamp]] = field(default_factory=dict)

    @property
    def done_at(self) -> Stamp:
        """When the run completed; NEVER if it has not, or if it names no dataset and so replaces nothing."""
        return self.completed if self.names_dataset else NEVER

    @property
    def newest(self) -> Stamp:
        return max(self.completed, *(at for _, at in self.statements()), NEVER)

    def statements(self) -> Iterator[tuple[str, Stamp]]:
        return ((digest, at) for digest, stamps in self.said.items() for at in stamps)


class Trace(NamedTuple):
    """What is stored of a run that is not remembered any more.

    completed: when it did; of a run that has named a dataset only the time, without the rest of the stamp.
    digests: the statements that it made, by the beginnings of their digests; None if a release did not store them.
    """

    completed: Stamp
    digests: list[str] | None

    @property
    def names_dataset(self) -> bool:
        return self.digests is None or bool(self.digests)

    def completed_after(self, at: Stamp) -> bool:
        return self.completed[:TIME_LENGTH] > at[:TIME_LENGTH]


@dataclass(slots=True)
class FoldedRuns:
    """Folded runs (past_runs.py) with the bodies of their statements: they only end what other runs have said."""

    _runs: dict[str, tuple[Run, Bodies]] = field(default_factory=dict)
    # the completed ones, in the order in which they completed
    _done: list[tuple[Stamp, str]] = field(default_factory=list)
    # counts the runs that were added or taken out, so that a cached answer is known to be outdated
    changes: int = 0
    # how many of the runs made each statement that reads something
    _reading: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __contains__(self, name: str) -> bool:
        return name in self._runs

    def items(self) -> Iterator[tuple[str, Run, Bodies]]:
        return ((name, run, bodies) for name, (run, bodies) in self._runs.items())

    def add(self, name: str, run: Run, bodies: Bodies) -> None:
        self.changes += 1
        self._runs[name] = run, {digest: bodies[digest] for digest in run.said}
        self._reading.update(digest for digest in run.said if bodies[digest]["read"])
        if run.done_at:
            insort(self._done, (run.done_at, name))

    def take(self, name: str) -> tuple[Run, Bodies]:
        self.changes += 1
        run, bodies = self._runs.pop(name)
        for digest in run.said:
            if bodies[digest]["read"]:
                self._reading[digest] -= 1
                if not self._reading[digest]:
                    del self._reading[digest]
        if run.done_at:
            self._done.remove((run.done_at, name))
        return run, bodies

    def clear(self) -> None:
        self.changes += 1
        self._runs.clear()
        self._reading.clear()
        self._done.clear()

    @property
    def reading(self) -> Iterable[str]:
        """The digests of their statements that read something."""
        return self._reading

    @property
    def newest_done(self) -> Stamp:
        return self._done[-1][0] if self._done else NEVER

    def lineage_floor(self, state: State, table: Ref) -> Stamp:
        """When the newest run completed that names the table's lineage, or does not name the table; NEVER if none."""
        for done_at, name in reversed(self._done):
            run, bodies = self._runs[name]
            named = named_tables(state, bodies, run)
            if table in named["lineage"] or table not in named["outputs"]:
                return done_at
        return NEVER

    def unmoved_lineage_floor(self, table: Ref) -> Stamp:
        """The same as `lineage_floor` while no name has moved, without looking names up."""
        for done_at, name in reversed(self._done):
            run, bodies = self._runs[name]
            named = [tables_of(bodies[digest]) for digest in run.said]
            if any(table in one.lineage for one in named) or not any(table in one.outputs for one in named):
                return done_at
        return NEVER


def named_tables(state: State, bodies: Bodies, run: Run) -> dict[str, set[Ref]]:
    said = [(bodies[digest], at) for digest, at in run.statements()]
    return {
        kind: {table for body, at in said for table in tables_now(state, body[kind], at)}
        for kind in ("outputs", "written", "lineage")
    }


def tables_now(state: State, names: Iterable[list[str]], at: Stamp) -> list[Ref]:
    found = (current_name(state, table_ref(name), at) for name in names)
    return [table for table in found if table is not None]

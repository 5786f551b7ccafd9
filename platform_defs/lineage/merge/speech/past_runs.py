"""Bounds what is stored of a speaker's runs, and notices when a run that is not stored any more matters again.

A run is *folded* when MAX_RUNS newer ones are known, or MAX_OPEN_RUNS if it has not completed, and when it does not
count any more or its statements can be put with those of other uncompleted runs. In memory a folded run is kept with
all that it said: a rebuild, which sees every event, can take it up again at any time. In the graph only traces of it
are stored:

- `SpeakerState.past`: which runs these were, by a hash, and which statements they had made. Another event of such a run
  needs a rebuild, unless it changes nothing: see `recall`.
- `SpeakerState.past_until`: of these runs nothing is newer than that. It tells whether one of them may have named a
  table (joining.py).
- `SpeakerState.forgotten_at`: the newest forgotten statement that still has claims. Those of columns that were read are
  never taken back, so that only a drop or rename needs to know of them, and only one that is older.
- `SpeakerState.lacks_counting`: statements of uncompleted runs count until a newer run completes. If there are more
  than MAX_UNFINISHED, the oldest are not stored, and the next run that completes needs a rebuild.

Traces of the last runs only are stored. A run of which an event arrives after more than MAX_PAST_COMPLETED others have
completed, or after more than MAX_PAST_OPEN others have begun, is taken for a new one.
"""

import hashlib
from dataclasses import replace

from platform_defs.lineage.facts import Statement
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.names import current_name
from platform_defs.lineage.merge.speech.rewriting import strike_dead
from platform_defs.lineage.merge.speech.runs import TIME_LENGTH, UNFINISHED, Run, Trace, named_tables
from platform_defs.lineage.merge.speech.speakers import SpeakerState, live_parts, live_shape, newest_stamps
from platform_defs.lineage.merge.speech.statement_bodies import digest_of, table_ref, tables_of
from platform_defs.lineage.merge.speech.vouching import say_vouched
from platform_defs.lineage.merge.state import NEVER, NeedsRebuild, Stamp, State

_SHORT = 6


def recall(state: State, speaker: SpeakerState, statement: Statement, at: Stamp) -> bool:
    """Called before a statement is added: brings its run back if it was folded, so that all that the run said counts.

    Returns False if the statement adds nothing. Raises NeedsRebuild if only a trace of the run is stored, except for
    these events:

    - any, if the run has said nothing so far: then all is known of it; and any that itself says nothing;
    - a new one, if it only makes the one statement again that the run had made (`_is_said_again`);
    - a late one, if newer runs say the same and have ended what it may end (`_is_outdone`). A backlog that is sent
      newest first has many of those: of each run the COMPLETE comes first, and then its START.
    """
    name = statement.run
    if name in speaker.runs:
        return True
    if name in speaker.folded:
        _unfold(speaker, name)
        # drops since then have not reached it
        strike_dead(state, speaker)
    elif (key := _hash(name)) in speaker.past:
        if not statement.names_dataset and not statement.completes:
            return False
        trace = speaker.past.pop(key)
        short = digest_of(statement)[:_SHORT]
        if not trace.names_dataset:
            speaker.runs[name] = Run(completed=trace.completed)
        elif state.is_partial and (state.names_moved or not _is_said_again(speaker, trace, statement, at)):
            if state.names_moved or trace.digests is None or not _is_outdone(speaker, trace, statement, at):
                raise NeedsRebuild(f"{statement.speaker.id}: an event of a run that is not remembered any more")
            speaker.past[key] = trace._replace(digests=sorted({*trace.digests, short}))
            return False
    return True


def _is_said_again(speaker: SpeakerState, trace: Trace, statement: Statement, at: Stamp) -> bool:
    """Whether this is a new event by which all is known again of its run.

    That is so if the run has made only this one statement; and if it had completed, it has to complete again.
    """
    return (
        trace.digests == [digest_of(statement)[:_SHORT]]
        and (statement.completes or not trace.completed)
        and at > max(speaker.floor, *(run.newest for run in speaker.runs.values()), NEVER)
    )


def _is_outdone(speaker: SpeakerState, trace: Trace, statement: Statement, at: Stamp) -> bool:
    """Whether a late event of this run changes nothing, because a newer run says the same; no name has moved.

    That run has completed later than every run that is not remembered. So nothing that the event says counts, except
    what it reads, and that the newer run reads too. The event only matters if by it the run names an output that it
    did not name before: until now the run has ended the lineage of that table. It makes no difference if a newer run
    names lineage of the table.
    """
    digest = digest_of(statement)
    newer = [run for run in speaker.runs.values() if run.done_at > max(speaker.floor, at)]
    completes = statement.completes and not trace.completed_after(at)
    if completes or not any(run.said.get(digest, [NEVER])[-1] > at for run in newer):
        return False
    known = [digest for digest in speaker.bodies if digest[:_SHORT] in (trace.digests or ())]
    named = {table for one in known for table in tables_of(speaker.bodies[one]).outputs}
    ended = {table for run in newer for one in run.said for table in tables_of(speaker.bodies[one]).lineage}
    return not trace.completed or tables_of(speaker.bodies[digest]).outputs <= named | ended


def fold(state: State, speaker: SpeakerState) -> None:
    """Folds the oldest runs, as many as there are more than the bounds allow; not those without which less counts."""
    completed = [name for name, run in speaker.runs.items() if run.completed]
    open_runs = [name for name, run in speaker.runs.items() if not run.completed and name != UNFINISHED]
    if len(completed) <= bounds.MAX_RUNS and len(open_runs) <= bounds.MAX_OPEN_RUNS:
        return
    counting = live_shape(state, speaker, readers=False)
    for name in (
        *_oldest(speaker, completed, len(completed) - bounds.MAX_RUNS),
        *_oldest(speaker, open_runs, len(open_runs) - bounds.MAX_OPEN_RUNS),
    ):
        run = speaker.runs.pop(name)
        if not state.names_moved and _is_repeated(speaker, run):
            speaker.folded.add(name, run, speaker.bodies)
            continue
        if run.done_at and _may_count_again(state, speaker, run):
            speaker.runs[name] = run
            continue
        if not run.done_at:
            others = speaker.runs.get(UNFINISHED, Run(names_dataset=True))
            added = {
                digest: newest_stamps(state, speaker.bodies[digest], [*others.said.get(digest, ()), *stamps])
                for digest, stamps in run.said.items()
            }
            speaker.runs[UNFINISHED] = replace(others, said={**others.said, **added})
        speaker.folded.add(name, run, speaker.bodies)
        if live_shape(state, speaker, readers=False) != counting:
            speaker.runs[name] = speaker.folded.take(name)[0]
    speaker.leave_out_unused_bodies()


def _oldest(speaker: SpeakerState, names: list[str], number: int) -> list[str]:
    return sorted(names, key=lambda name: (speaker.runs[name].newest, name))[: max(number, 0)]


def _is_repeated(speaker: SpeakerState, run: Run) -> bool:
    """Whether a later run that completed said exactly the same: then nothing depends on this one any more."""
    return bool(run.done_at) and any(
        later.done_at > run.newest
        and later.said.keys() == run.said.keys()
        and all(later.said[digest][-1] > stamps[-1] for digest, stamps in run.said.items())
        for later in speaker.runs.values()
    )


def _may_count_again(state: State, speaker: SpeakerState, run: Run) -> bool:
    """Whether lineage of the run may count again, because it was ended only by runs that do not name its table.

    A late event of such a run may still name the table, and then the run has not ended the lineage.
    """
    for digest, at in run.statements():
        effective = max(at, run.done_at)
        for name in map(table_ref, speaker.bodies[digest]["lineage"]):
            table = current_name(state, name, at)
            if table is not None and effective >= max(
                speaker.lineage_floors.get(name.id, NEVER),
                speaker.folded.lineage_floor(state, table),
                *(
                    other.done_at
                    for other in speaker.runs.values()
                    if other.done_at > effective and table in named_tables(state, speaker.bodies, other)["lineage"]
                ),
            ):
                return True
    return False


def unfold_all(speaker: SpeakerState) -> None:
    for name, _, _ in list(speaker.folded.items()):
        _unfold(speaker, name)


def _unfold(speaker: SpeakerState, name: str) -> None:
    speaker.runs[name], bodies = speaker.folded.take(name)
    speaker.bodies = {**bodies, **speaker.bodies}


def bound_runs(state: State, speaker: SpeakerState) -> None:
    """Called before the speaker is written: removes what is not stored, and keeps traces of the removed runs."""
    unfinished = speaker.runs.get(UNFINISHED)
    too_many = unfinished is not None and len(unfinished.said) > min(bounds.MAX_OPEN_RUNS, bounds.MAX_UNFINISHED)
    if not speaker.folded and not too_many:
        return
    bodies = {**speaker.bodies}
    said_before = set(speaker.said())
    for _, run, some in speaker.folded.items():
        bodies |= some
        said_before.update(run.statements())
    if too_many and unfinished is not None:
        _bound_unfinished(state, speaker, unfinished)
    for name, run, _ in speaker.folded.items():
        completed = Stamp(run.completed[:TIME_LENGTH]) if run.said else run.completed
        speaker.past.pop(_hash(name), None)
        is_known = run.said or not run.names_dataset
        speaker.past[_hash(name)] = Trace(completed, [digest[:_SHORT] for digest in run.said] if is_known else None)
    completions = [run.completed for _, run, _ in speaker.folded.items()]
    _keep_floors(state, speaker)
    speaker.folded.clear()
    _bound_past(speaker)
    # what is said again in a run that is remembered needs no correction
    last_said: dict[str, Stamp] = {}
    for digest, at in speaker.said():
        last_said[digest] = max(last_said.get(digest, NEVER), at)
    forgotten = [(digest, at) for digest, at in said_before if at > last_said.get(digest, NEVER)]
    say_vouched(state, bodies, forgotten)
    gone = said_before.difference(speaker.said())
    speaker.past_until = max(speaker.past_until, *(at for _, at in gone), *completions, NEVER)
    claiming = [at for digest, at in forgotten if bodies[digest]["read"] or speaker.lacks_counting]
    speaker.forgotten_at = max(speaker.forgotten_at, *claiming, NEVER)
    speaker.leave_out_unused_bodies()


def _bound_unfinished(state: State, speaker: SpeakerState, unfinished: Run) -> None:
    """Of the statements of uncompleted runs, keeps those that count or may do so again; of too many the newest."""
    said = unfinished.said
    counting = sorted(
        _counting_digests(state, speaker) & said.keys(), key=lambda digest: (said[digest][-1], digest), reverse=True
    )
    kept = set(counting[: bounds.MAX_UNFINISHED])
    speaker.lacks_counting |= len(counting) > len(kept)
    speaker.runs[UNFINISHED] = replace(unfinished, said={digest: said[digest] for digest in said if digest in kept})


def _counting_digests(state: State, speaker: SpeakerState) -> set[str]:
    """The statements of uncompleted runs that count or may do so again; some others too."""
    live = {part.digest for part in live_parts(state, speaker) if part.kind not in ("read", "reading")}
    unfinished = speaker.runs.get(UNFINISHED, Run())
    return live | {
        digest
        for digest, stamps in unfinished.said.items()
        if _may_count_again(state, speaker, Run(said={digest: stamps}))
    }


def _keep_floors(state: State, speaker: SpeakerState) -> None:
    """Called before the folded runs are forgotten: keeps what they have ended from counting again."""
    speaker.floor = max(speaker.floor, speaker.folded.newest_done)
    for run in speaker.runs.values():
        for digest, at in run.statements():
            for name in map(table_ref, speaker.bodies[digest]["lineage"]):
                if (table := current_name(state, name, at)) is not None:
                    floor = speaker.folded.lineage_floor(state, table)
                    if floor > speaker.lineage_floors.get(name.id, NEVER):
                        speaker.lineage_floors[name.id] = floor


def _bound_past(speaker: SpeakerState) -> None:
    completed = [name for name, trace in speaker.past.items() if trace.completed]
    open_runs = [name for name, trace in speaker.past.items() if not trace.completed]
    for name in (*completed[: -bounds.MAX_PAST_COMPLETED], *open_runs[: -bounds.MAX_PAST_OPEN]):
        del speaker.past[name]


def _hash(run: str) -> str:
    return hashlib.blake2b(run.encode(), digest_size=_SHORT // 2).hexdigest()

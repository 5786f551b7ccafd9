"""One attempt at a task: page after page from where the last committed batch ended, until its slice is done."""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from platform_defs.ingest.codes import Operation, TaskStatus
from platform_defs.ingest.errors import LeaseLost, ResponseError
from platform_defs.ingest.execution.progress import (
    MAX_PASSES,
    FetchFailed,
    LastRun,
    Progress,
    begin_again,
    is_forgotten,
    items_with,
    last_run_before,
    missing_items,
    moved_items,
    refuse_repeated_page,
    resume,
    run_stats,
)
from platform_defs.ingest.execution.records import Batch, CommittedBatch, commit_batch
from platform_defs.ingest.execution.splitting import split_task
from platform_defs.ingest.execution.task_ends import Clock, TaskEnds
from platform_defs.ingest.fetching.early_ends import (
    PageSize,
    Reslicing,
    RunUse,
    reslicing_for,
    rest_in_parts,
    used_up,
)
from platform_defs.ingest.fetching.page_fetching import CompiledSnapshot, FetchedBatch, fetch_ids, fetch_search_page
from platform_defs.ingest.fetching.pages import (
    PageFacts,
    PagePosition,
    exceeds_cap,
    is_cut_short,
    next_position,
)
from platform_defs.ingest.fetching.source import Source
from platform_defs.ingest.planning.slices import ids_of, split_slice
from platform_defs.ingest.tasks.health import seen_in
from platform_defs.ingest.tasks.leases import LeasedTask
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan_slice, ing_task_run_batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Ended:
    """A run that ended before its slice did, with the task's final state; None where it waits again."""

    status: TaskStatus | None


@dataclass(frozen=True)
class TaskRun:
    """What an attempt works with; `cancel` ends it between two pages."""

    engine: Engine
    source: Source
    snapshot: CompiledSnapshot
    leased: LeasedTask
    clock: Clock
    cancel: threading.Event
    ends: TaskEnds

    def execute(self) -> TaskStatus | None:
        """The task's final state; None where it waits again or another executor has it."""
        try:
            status = self._fetch_slice()
        except LeaseLost as error:
            # or this one has ended it, in a transaction whose commit got no answer: the cursor moves in either case
            _log.warning("task %d is left to another executor: %s", self.leased.task_id, error)
            status = None
        except ResponseError as error:
            status = self.ends.fail(error)
        self.ends.advance_cursor()
        return status

    def _fetch_slice(self) -> TaskStatus | None:
        """Fetches and commits page after page; returns the task's final state, None where it waits again."""
        began_at = self.clock()
        slice_row, last, last_run = read(self.engine, self._load)
        slice_spec = slice_row.slice_spec
        progress = resume(self.snapshot.spec.pagination, slice_spec, last, began_at, last_run=last_run)
        if missing := missing_items(self.snapshot.spec, progress, progress.total):
            # the run before came to the slice's end and died before it could begin again
            progress = self._begin_again_or_note(slice_spec, progress, missing)
        while (position := progress.position) is not None:
            if self.cancel.is_set():
                return self.ends.stop(progress)
            asked_at = self.clock()
            try:
                fetched = self._fetch(slice_spec, position)
            except ResponseError as error:
                if is_forgotten(position, error) and progress.passes_of_this_run < MAX_PASSES:
                    _log.warning("task %d begins again from its window: %s", self.leased.task_id, error)
                    progress = begin_again(slice_spec, progress)
                    continue
                raise FetchFailed(error, progress) from error
            facts = fetched.facts
            if position.number == 1 and self._is_split(slice_spec, facts):
                return TaskStatus.SUCCEEDED
            if moved := moved_items(self.snapshot.spec, progress, facts.total):
                progress = self._begin_again_or_note(slice_spec, progress, moved)
                if not progress.incomplete:
                    continue
            refuse_repeated_page(progress, position, fetched.page_hash)
            self._note_incomplete(progress, facts)
            asked_to_stop = self._commit(slice_spec, progress, fetched, asked_at)
            if missing := missing_items(self.snapshot.spec, progress, facts.total):
                progress = self._begin_again_or_note(slice_spec, progress, missing)
            if progress.position is not None:
                if asked_to_stop:
                    return self.ends.stop(progress)
                if ended := self._end_early(slice_spec, progress, fetched, began_at):
                    return ended.status
        status = TaskStatus.PARTIAL if progress.incomplete else TaskStatus.SUCCEEDED
        self.ends.end(status, progress, "INCOMPLETE" if progress.incomplete else None, progress.incomplete)
        return status

    def _load(self, connection: Connection) -> tuple[Row[Any], Row[Any] | None, LastRun | None]:
        batch = ing_task_run_batch.c
        mine = select(ing_plan_slice).where(ing_plan_slice.c.id == self.leased.slice_id)
        last = select(ing_task_run_batch).where(batch.task_id == self.leased.task_id).order_by(batch.id.desc()).limit(1)
        batch_row = connection.execute(last).one_or_none()
        if batch_row is None:
            return connection.execute(mine).one(), None, None
        last_run = last_run_before(connection, self.leased.task_id, self.leased.attempt_no)
        return connection.execute(mine).one(), batch_row, last_run

    def _begin_again_or_note(self, slice_spec: Mapping[str, Any], progress: Progress, reason: str) -> Progress:
        if progress.passes_of_this_run < MAX_PASSES:
            _log.warning("task %d begins again from its window: %s", self.leased.task_id, reason)
            return begin_again(slice_spec, progress)
        progress.incomplete = f"{reason}, also when it was asked {MAX_PASSES} times"
        return progress

    def _fetch(self, slice_spec: Mapping[str, Any], position: PagePosition) -> FetchedBatch:
        if self.snapshot.spec.operation is not Operation.UPDATE:
            return fetch_search_page(self.snapshot, self.source, slice_spec, position, self.cancel)
        return fetch_ids(self.snapshot, self.source, self._ids_at(slice_spec, position), self.cancel)

    def _ids_at(self, slice_spec: Mapping[str, Any], position: PagePosition) -> list[str]:
        size = self.snapshot.spec.batching.id_batch_size
        return ids_of(slice_spec)[(position.number - 1) * size : position.number * size]

    def _following(
        self, slice_spec: Mapping[str, Any], position: PagePosition, facts: PageFacts
    ) -> PagePosition | None:
        if self.snapshot.spec.operation is Operation.UPDATE:
            is_last = position.number * self.snapshot.spec.batching.id_batch_size >= len(ids_of(slice_spec))
            return None if is_last else PagePosition(position.number + 1)
        last_page = slice_spec["bounds"].get("page", {}).get("toPage")
        return next_position(self.snapshot.spec.pagination, position, facts, last_page=last_page)

    def _is_split(self, slice_spec: Mapping[str, Any], facts: PageFacts) -> bool:
        spec = self.snapshot.spec
        if spec.operation is Operation.UPDATE or not exceeds_cap(spec.pagination, facts.total):
            return False
        drafts, stats, now = split_slice(spec, slice_spec), {"total": facts.total}, self.clock()
        return transact(
            self.engine, lambda connection: split_task(connection, self.leased, drafts, stats=stats, now=now)
        )

    def _end_early(
        self, slice_spec: Mapping[str, Any], progress: Progress, fetched: FetchedBatch, began_at: datetime
    ) -> _Ended | None:
        """Cuts the rest of the slice, or lets it wait for its next run; None where this run goes on."""
        counts, spec, position = progress.counts, self.snapshot.spec, progress.position
        assert position is not None, "there is a next page"
        use = RunUse(counts["reqCount"] + counts["retryCount"], counts["429Count"], self.clock() - began_at)
        over_budget = used_up(slice_spec["budget"], use, times=progress.pass_no)
        is_update = spec.operation is Operation.UPDATE
        asked_for = None if is_update else spec.pagination.page_size
        page = PageSize(fetched.facts.items, fetched.counts["bytes"], asked_for)
        why = reslicing_for(page, use, over_budget)
        if why is not None and self._is_cut(slice_spec, progress, position, why):
            return _Ended(TaskStatus.SUCCEEDED)
        return None if over_budget is None else _Ended(self.ends.pause(progress, over_budget))

    def _is_cut(
        self, slice_spec: Mapping[str, Any], progress: Progress, following: PagePosition, why: Reslicing
    ) -> bool:
        """Cuts the rest of the slice in two, if that is possible and worth it; returns whether it did."""
        share = progress.items_of_pass / progress.total if progress.total else None
        drafts = rest_in_parts(self.snapshot.spec, slice_spec, following, why, share)
        stats, now = run_stats(progress), self.clock()
        is_cut = transact(
            self.engine,
            lambda connection: split_task(
                connection, self.leased, drafts, stats=stats, now=now, reason=f"the rest was cut in two: {why.reason}"
            ),
        )
        if is_cut:
            _log.warning("the rest of task %d was cut in two: %s", self.leased.task_id, why.reason)
        return is_cut

    def _note_incomplete(self, progress: Progress, facts: PageFacts) -> None:
        pagination, position = self.snapshot.spec.pagination, progress.position
        assert position is not None, "a page was fetched"
        if self.snapshot.spec.operation is Operation.UPDATE:
            return
        if exceeds_cap(pagination, facts.total):
            progress.incomplete = (
                f"the source has {facts.total} records here, more than it lets one query page through, and the slice"
                " cannot be split any further"
            )
        elif is_cut_short(pagination, position, facts):
            progress.incomplete = f"the source has more than the {pagination.max_page} pages that one slice may fetch"

    def _commit(
        self, slice_spec: Mapping[str, Any], progress: Progress, fetched: FetchedBatch, asked_at: datetime
    ) -> bool:
        """Whether somebody wants the task stopped by now."""
        position = progress.position
        assert position is not None, "a page was fetched"
        following = self._following(slice_spec, position, fetched.facts)
        is_update = self.snapshot.spec.operation is Operation.UPDATE
        batch = Batch(
            batch_no=progress.batch_no + 1,
            position=position,
            following=following,
            pass_no=progress.pass_no,
            items=fetched.facts.items,
            records=fetched.records,
            rejections=fetched.rejections,
            outside=fetched.outside,
            asked_ids=self._ids_at(slice_spec, position) if is_update else (),
            request_digest=fetched.request_digest,
            response_digest=fetched.response_digest,
            counts=fetched.counts,
            total=fetched.facts.total,
            items_of_pass=items_with(progress, position, fetched.facts.items),
            page_hash=fetched.page_hash,
            incomplete=progress.incomplete,
        )
        now, waits_since, waited_s = self.clock(), time.monotonic(), list[float]()

        def commit(connection: Connection) -> CommittedBatch:
            waited_s.append(time.monotonic() - waits_since)
            return commit_batch(
                connection,
                self.snapshot.spec,
                self.leased,
                batch,
                mapping=self.snapshot.mapping,
                asked_at=asked_at,
                now=now,
            )

        committed = transact(self.engine, commit)
        progress.position, progress.batch_no = following, batch.batch_no
        progress.batches_of_this_run += 1
        progress.items_of_pass, progress.items_of_page = batch.items_of_pass, batch.items
        progress.page_hash, progress.total = batch.page_hash, batch.total
        progress.counts.update(fetched.counts)
        self.ends.note(seen_in(fetched.counts, round(1000 * waited_s[-1])))
        progress.counts.update(vars(committed.counts))
        times = [record.updated_at for record in fetched.records if record.updated_at is not None]
        progress.observed_max = max([*times, *([progress.observed_max] if progress.observed_max else [])], default=None)
        return committed.cancel_requested_at is not None

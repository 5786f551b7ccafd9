"""How far a slice has come: where a run resumes, when it begins again from its window, and when pages are missing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from platform_defs.ingest.codes import ErrorLevel, Operation, PaginationType, RepeatedToken, RunStatus
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.fetching.pages import PagePosition, first_position
from platform_defs.ingest.spec.model import PaginationSpec, Spec
from platform_defs.ingest.spec.snapshot import instant_text
from platform_defs.store.tables.ingest import ing_task_run

# How often one run fetches a slice from its start: because the source forgot its token, or lists fewer items than it
# counts.
MAX_PASSES = 3
# A source's word for a page token that it no longer knows, where it is clear that it means just that.
EXPIRED_TOKEN = "TOKEN_EXPIRED"
# What a source may answer to a token or to the address of a page that it gave and no longer knows.
_FORGOTTEN = (EXPIRED_TOKEN, "HTTP_400", "HTTP_404", "HTTP_410")
# Errors that may pass, but speak of the page: a source that is away says nothing of it.
_ABOUT_THE_PAGE = ("ERROR_IN_BODY", "REPEATED_PAGE")


@dataclass
class Progress:
    """Where the slice stands."""

    position: PagePosition | None
    batch_no: int = 0
    pass_no: int = 1
    batches_of_this_run: int = 0
    passes_of_this_run: int = 1
    # items since the slice was last begun from its start, also those that earlier runs fetched
    items_of_pass: int = 0
    # items of the page before: a last page that is asked for once more lists them again
    items_of_page: int = 0
    # a hash of the ids of the page before: a page with the same ids is no new one
    page_hash: str | None = None
    # how many items the source counted on the page before
    total: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    observed_max: datetime | None = None
    # why the slice cannot become complete
    incomplete: str | None = None


class FetchFailed(ResponseError):
    """An error of a fetch, with how far the slice had come."""

    def __init__(self, error: ResponseError, progress: Progress) -> None:
        super().__init__(error.level, error.code, str(error), not_before=error.not_before)
        self.progress = progress


@dataclass(frozen=True)
class LastRun:
    """How the attempt before this one ended."""

    status: RunStatus
    # the number of its last batch, if it ended right after that one: no page was asked for that was not committed
    stopped_after: int | None = None
    # the page that it could not fetch, and how the error was graded
    failed_at: PagePosition | None = None
    error_level: ErrorLevel | None = None
    error_code: str | None = None


def last_run_before(connection: Connection, task_id: int, attempt_no: int) -> LastRun:
    """How the attempt before this one ended; there is one if the task has a batch that this one did not commit."""
    run = ing_task_run.c
    columns = (run.status_code, run.checkpoint, run.stats)
    earlier = select(*columns).where(run.task_id == task_id, run.attempt_no < attempt_no)
    ended = connection.execute(earlier.order_by(run.attempt_no.desc()).limit(1)).one()
    stats = ended.stats or {}
    # a run of an older version says where it failed, but not how
    failed_at, level = stats.get("failedAt"), stats.get("errorLevel")
    return LastRun(
        RunStatus(ended.status_code),
        (ended.checkpoint or {}).get("afterBatch"),
        None if failed_at is None else PagePosition.from_json(failed_at),
        None if level is None else ErrorLevel(level),
        stats.get("errorCode"),
    )


def resume(
    pagination: PaginationSpec,
    slice_spec: Mapping[str, Any],
    last: Row[Any] | None,
    now: datetime,
    *,
    last_run: LastRun | None = None,
) -> Progress:
    """Where a run begins: after the task's last committed batch, whichever run committed it.

    From the slice's start if the next page's address has expired, cannot be trusted or was refused, or if the run
    before came to the end and lacked something.
    """
    if last is None:
        return Progress(first_position(slice_spec))
    stats = last.stats
    hint = stats["nextHint"]
    progress = Progress(
        None if hint is None else PagePosition.from_json(hint),
        batch_no=last.batch_no,
        pass_no=stats["pass"],
        items_of_pass=stats.get("itemsOfPass", 0),
        items_of_page=stats.get("itemsCount", 0),
        page_hash=stats.get("pageHash"),
        total=stats.get("total"),
        incomplete=stats.get("incomplete"),
    )
    if hint is None and last_run is not None and last_run.status is RunStatus.PARTIAL:
        # it came to its end and lacked something: whoever asks for it again wants that
        return replace(begin_again(slice_spec, progress), passes_of_this_run=1)
    if progress.position is not None and _is_dead(progress.position, last_run):
        return replace(begin_again(slice_spec, progress), passes_of_this_run=1)
    if hint is None or not hint["token"]:
        return progress
    has_expired = pagination.token_ttl is not None and now - last.committed_at > pagination.token_ttl
    # A token that stays the same from page to page means that the source counts the pages: it may have sent one that
    # the run before could not commit, and would now send the page after it.
    was_stopped_here = last_run is not None and last_run.stopped_after == last.batch_no
    if has_expired or (last.before_token == hint["token"] and not was_stopped_here):
        return replace(begin_again(slice_spec, progress), passes_of_this_run=1)
    return progress


def is_forgotten(position: PagePosition, error: ResponseError) -> bool:
    """Whether the error may mean that the source no longer knows the address of a page, which it gave itself."""
    return position.is_given_by_source and error.code in _FORGOTTEN


def _is_dead(position: PagePosition, last_run: LastRun | None) -> bool:
    """Whether to go on at this page would end as the run before did: the window would stay where it is for ever.

    That run was refused there, or given up for what the source said of this very page. Or it had begun again for such a
    reason, and failed before its first page was stored.
    """
    if last_run is None or last_run.failed_at is None or not position.is_given_by_source:
        return False
    is_refused = last_run.error_level in (ErrorLevel.REQUEST, ErrorLevel.FATAL)
    is_given_up = last_run.status is RunStatus.PARTIAL and last_run.error_code in _ABOUT_THE_PAGE
    return is_refused or is_given_up or last_run.failed_at != position


def begin_again(slice_spec: Mapping[str, Any], progress: Progress) -> Progress:
    """The progress of another pass, from the slice's start. Records that are stored already are not stored twice."""
    return replace(
        progress,
        position=first_position(slice_spec),
        pass_no=progress.pass_no + 1,
        passes_of_this_run=progress.passes_of_this_run + 1,
        items_of_pass=0,
        items_of_page=0,
        page_hash=None,
        total=None,
        incomplete=None,
    )


def items_with(progress: Progress, position: PagePosition, items: int) -> int:
    """Items of this pass up to and with a page; of a last page that is asked for once more only what it has more."""
    known = progress.items_of_page if position.is_probe else 0
    return progress.items_of_pass + max(0, items - known)


def missing_items(spec: Spec, progress: Progress, total: int | None) -> str | None:
    """What a slice that came to its end misses: fewer items were listed than its source counts.

    A source that counts the pages itself sends the next one also when an answer was lost on its way and is asked for
    again. One that is asked by offset may send a page that is short or empty although more follow.
    """
    if progress.position is not None or progress.incomplete or total is None:
        return None
    pagination = spec.pagination
    keeps_place = pagination.type is PaginationType.TOKEN and pagination.repeated_token is RepeatedToken.CONTINUES
    if spec.operation is Operation.UPDATE or not (keeps_place or _is_counted_by_offset(spec)):
        return None
    listed = progress.items_of_pass
    return f"the source counts {total} items and listed {listed} of them" if listed < total else None


def moved_items(spec: Spec, progress: Progress, total: int | None) -> str | None:
    """Why the place of a page cannot be trusted: items came or went since the page before.

    Each of them moves all later ones by one, and the one at the border of two pages is then on neither of them.
    """
    before = progress.total
    if before is None or total is None or before == total or progress.incomplete or not _is_counted_by_offset(spec):
        return None
    return f"the source counted {before} items on one page and {total} on the next"


def _is_counted_by_offset(spec: Spec) -> bool:
    """Whether pages are places in a list of which the source also tells the length: that of this slice alone."""
    by_offset = spec.pagination.type in (PaginationType.OFFSET, PaginationType.PAGE)
    return by_offset and spec.window.supports_updated_since and spec.operation is not Operation.UPDATE


def refuse_repeated_page(progress: Progress, position: PagePosition, page_hash: str | None) -> None:
    """A source that sends the page before once more has kept back the one that was asked for."""
    if page_hash is not None and page_hash == progress.page_hash and not position.is_probe:
        message = f"page {position.number} has the same ids as the page before: expected others"
        raise FetchFailed(ResponseError(ErrorLevel.TRANSIENT, "REPEATED_PAGE", message), progress)


def checkpoint(progress: Progress) -> dict[str, Any] | None:
    """Where a run ended of its own accord between two pages; None where it has committed no page."""
    if not progress.batches_of_this_run or progress.position is None:
        return None
    return {"afterBatch": progress.batch_no, "nextHint": progress.position.as_json()}


def run_stats(progress: Progress, *, error: ResponseError | None = None) -> dict[str, Any]:
    """What a run leaves behind.

    One that failed with this error also says which page it asked for, so that it can be replayed, and how it failed.
    """
    observed = None if progress.observed_max is None else instant_text(progress.observed_max)
    stats: dict[str, Any] = {**progress.counts, "pagesVisited": progress.batches_of_this_run, "observedMax": observed}
    if error is not None:
        stats |= {"errorLevel": error.level, "errorCode": error.code}
        if progress.position is not None:
            stats["failedAt"] = progress.position.as_json()
    return stats

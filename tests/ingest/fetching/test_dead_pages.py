"""A page whose address the source gave, and no longer knows: the slice begins again, not for ever and not in vain."""

from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from platform_defs.http_door.door import Door
from platform_defs.ingest.codes import ErrorLevel, Location, PaginationType, PlanStatus, RepeatedToken, TaskStatus
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.execution.progress import MAX_PASSES
from platform_defs.ingest.execution.task_ends import LONGEST_WAIT, MAX_ATTEMPTS
from platform_defs.ingest.ledger.windows import plan_report
from platform_defs.ingest.planning.planner import PlannedWork
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.spec.model import RequestParam, Spec
from platform_defs.ingest.tasks.blocks import unblock_endpoint
from platform_defs.ingest.transport.http_source import HttpSource
from platform_defs.rate_gate.gate import RateGate
from platform_defs.store.tables.ingest import ing_task, ing_task_run_batch
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import DAY, Clock, drain, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import plan, rows_of
from tests.ingest.transport.test_http_source import quick

GIVEN_BY_THE_SOURCE = [PaginationType.TOKEN, PaginationType.URL]
ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
COUNT, SIZE, PAGES = 35, 10, 4


def spec_of(kind: PaginationType) -> Spec:
    spec = paged(kind, SIZE, repeated_token=RepeatedToken.ENDS)
    assert spec.search is not None
    cursor = RequestParam("cursor", "cursor", Location.QUERY, expr="${page.token}")
    return quick(replace(spec, search=replace(spec.search, params=(*spec.search.params, cursor))))


@dataclass
class Forgetful:
    """Answers over HTTP. The addresses of its next pages hold in one era, and are refused in the next one."""

    kind: PaginationType
    refuses_with: int
    # forgets all addresses right after the answer to this request, or after every answer
    forgets_after: int | None = None
    always_forgets: bool = False
    origin: str = "https://source.test"
    era: int = 0
    requests: int = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        era, start = self._place(request)
        if start and era != self.era:
            return httpx.Response(self.refuses_with, json={"message": "unknown cursor"})
        document: dict[str, Any] = {"items": items_of(COUNT)[start : start + SIZE], "total": COUNT}
        behind = start + SIZE
        if behind < COUNT:
            place = f"{self.era}-{behind}"
            document["next"] = place if self.kind is PaginationType.TOKEN else f"{self.origin}/items?cursor={place}"
        if self.always_forgets or self.requests == self.forgets_after:
            self.era += 1
        return httpx.Response(200, json=document)

    def _place(self, request: httpx.Request) -> tuple[int, int]:
        era, _, start = request.url.params.get("cursor", "0-0").partition("-")
        return int(era), int(start)


def materialise(engine: Engine, spec: Spec, answer: Forgetful) -> tuple[PlannedWork, PlanStatus]:
    """Plans the window, or continues its plan, and fetches it over HTTP."""
    planned, clock = plan(engine, spec, DAY, Estimate()), Clock()
    with Door(RateGate(engine), transport=httpx.MockTransport(answer)) as door:
        working = Executor(engine, lambda spec: HttpSource(spec, door, engine, now=clock), threads=1, clock=clock)
        return planned, working.drain_plans([planned.plan_id])[planned.plan_id]


@pytest.mark.parametrize("status", [400, 404, 410])
@pytest.mark.parametrize("kind", GIVEN_BY_THE_SOURCE)
def test_a_window_that_failed_at_a_forgotten_page_is_begun_again_the_next_time(
    engine: Engine, kind: PaginationType, status: int
) -> None:
    spec, answer = spec_of(kind), Forgetful(kind, status, always_forgets=True)
    first, state = materialise(engine, spec, answer)
    assert state is PlanStatus.PARTIAL
    assert "unknown cursor" in plan_report(engine, first.plan_id).unfinished[0]
    assert answer.requests == 2 * MAX_PASSES, "it is begun again in the same run, but not for ever"
    answer.always_forgets, answer.requests = False, 0
    again, state = materialise(engine, spec, answer)
    assert (again.generation, state) == (1, PlanStatus.COMPLETED)
    assert answer.requests == PAGES, "nobody asks for the dead page once more"
    assert stored(engine) == listed(items_of(COUNT))


@ON_SQLITE
@pytest.mark.parametrize("status", [400, 404, 410])
@pytest.mark.parametrize("kind", GIVEN_BY_THE_SOURCE)
def test_a_page_that_is_forgotten_in_the_middle_begins_the_slice_again_at_once(
    engine: Engine, kind: PaginationType, status: int
) -> None:
    spec, answer = spec_of(kind), Forgetful(kind, status, forgets_after=2)
    assert materialise(engine, spec, answer)[1] is PlanStatus.COMPLETED
    assert answer.requests == 2 + 1 + PAGES
    assert [batch.stats["pass"] for batch in rows_of(engine, ing_task_run_batch)] == [1, 1, 2, 2, 2, 2]
    assert stored(engine) == listed(items_of(COUNT))


@ON_SQLITE
def test_a_next_page_on_another_origin_is_forgotten_when_the_source_has_recovered(engine: Engine) -> None:
    spec, answer = spec_of(PaginationType.URL), Forgetful(PaginationType.URL, 404, origin="https://foreign.test")
    first, state = materialise(engine, spec, answer)
    assert state is PlanStatus.PARTIAL
    assert "expected one on source.test" in plan_report(engine, first.plan_id).unfinished[0]
    answer.origin = "https://source.test"
    assert materialise(engine, spec, answer)[1] is PlanStatus.COMPLETED
    assert answer.requests == 1 + PAGES
    assert stored(engine) == listed(items_of(COUNT))


@ON_SQLITE
def test_a_slice_that_was_begun_again_in_vain_does_not_go_back_to_the_dead_page(engine: Engine) -> None:
    spec, clock = paged(PaginationType.URL), Clock()
    source = MemorySource(spec.pagination, items_of(COUNT))
    planned = plan(engine, spec, DAY, Estimate())

    def trouble(number: int) -> None:
        if number == 2:
            raise ResponseError(ErrorLevel.REQUEST, "FOREIGN_NEXT_URL", "the next page is elsewhere")
        if number == 3:
            raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_503", "the source is away")

    source.trouble = trouble
    executor(engine, source, clock).drain_everything()
    plan(engine, spec, DAY, Estimate())
    executor(engine, source, clock).drain_everything()
    clock.pass_by(LONGEST_WAIT)
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert len(source.requests) == 3 + PAGES
    assert [address for address, _ in source.requests[1:4]] == [
        "https://source.test/items?start=10",
        "items",
        "items",
    ], "neither the second run nor the third goes on where the first one was refused"


@ON_SQLITE
def test_a_next_url_that_expired_with_a_403_does_not_block_the_endpoint_again_after_it_was_unblocked(
    engine: Engine,
) -> None:
    spec, answer = spec_of(PaginationType.URL), Forgetful(PaginationType.URL, 403, forgets_after=2)
    materialise(engine, spec, answer)
    assert unblock_endpoint(engine, spec.provenance_code, spec.endpoint_name)
    assert materialise(engine, spec, answer)[1] is PlanStatus.COMPLETED
    assert stored(engine) == listed(items_of(COUNT))


def give_up(engine: Engine, spec: Spec, source: MemorySource, error: ResponseError) -> None:
    """Lets every attempt at the third page fail until the task is given up; the source has recovered then."""
    clock = Clock()

    def trouble(number: int) -> None:
        if number >= 3:
            raise error

    source.trouble = trouble
    plan(engine, spec, DAY, Estimate())
    for _ in range(1 + MAX_ATTEMPTS):  # the first one has brought two pages, and does not count
        executor(engine, source, clock).drain_everything()
        clock.pass_by(LONGEST_WAIT)
    assert [task.status_code for task in rows_of(engine, ing_task)] == [TaskStatus.PARTIAL]
    source.trouble = lambda number: None
    source.requests.clear()


@ON_SQLITE
@pytest.mark.parametrize("kind", GIVEN_BY_THE_SOURCE)
@pytest.mark.parametrize(
    ("code", "asked"),
    [("ERROR_IN_BODY", PAGES), ("REPEATED_PAGE", PAGES), ("HTTP_503", PAGES - 2), ("NO_ANSWER", PAGES - 2)],
)
def test_a_page_that_was_given_up_is_begun_again_only_where_the_answer_was_about_the_page(
    engine: Engine, kind: PaginationType, code: str, asked: int
) -> None:
    """A source that was away has forgotten nothing: what is fetched stays fetched."""
    spec = spec_of(kind)
    source = MemorySource(spec.pagination, items_of(COUNT))
    give_up(engine, spec, source, ResponseError(ErrorLevel.TRANSIENT, code, "the source says no"))
    assert drain(engine, spec, source)[1] is PlanStatus.COMPLETED
    # behind its last page the memory source names one token more
    assert len(source.requests) == asked + (kind is PaginationType.TOKEN)
    assert stored(engine) == listed(source.items)


@ON_SQLITE
def test_a_page_that_is_a_place_in_a_list_is_asked_for_again_where_it_was_refused(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(COUNT))

    def trouble(number: int) -> None:
        if number == 3:
            raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "no")

    source.trouble = trouble
    assert drain(engine, spec, source)[1] is PlanStatus.PARTIAL
    assert drain(engine, spec, source)[1] is PlanStatus.COMPLETED
    assert len(source.requests) == PAGES + 1

"""Any stored batch can be rebuilt from its plan's snapshot: the same request, without sending or writing anything."""

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Engine

from platform_defs.http_door.door import Door
from platform_defs.ingest.codes import Location, Operation, PaginationType, PlanStatus, RepeatedToken, RunStatus
from platform_defs.ingest.errors import IngestError
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.execution.replay import load_batch
from platform_defs.ingest.execution.task_ends import LONGEST_WAIT, MAX_ATTEMPTS
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.spec.model import RequestParam, Spec
from platform_defs.ingest.transport.http_source import HttpSource
from platform_defs.ingest.transport.requests import replay_request, request_digest
from platform_defs.rate_gate.gate import RateGate
from platform_defs.store.tables.ingest import ing_task_run, ing_task_run_batch
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import DAY, Clock, asked_again
from tests.ingest.planning.test_planner import NOW, SPEC, plan, rows_of
from tests.ingest.transport.test_http_source import quick


def served(spec: Spec, pages: list[dict[str, object]]) -> httpx.MockTransport:
    answers = iter(pages)
    return httpx.MockTransport(lambda request: httpx.Response(200, json=next(answers)))


@pytest.mark.parametrize("kind", [PaginationType.OFFSET, PaginationType.TOKEN, PaginationType.URL])
def test_the_request_of_every_batch_is_rebuilt_as_it_was_sent(engine: Engine, kind: PaginationType) -> None:
    more = {"next_token_path": "$.next"} if kind is PaginationType.TOKEN else {}
    more |= {"next_url_path": "$.next"} if kind is PaginationType.URL else {}
    paging = replace(
        SPEC.pagination, type=kind, page_size=2, repeated_token=RepeatedToken.CONTINUES, total_path=None, **more
    )
    spec = quick(replace(SPEC, pagination=paging))
    pages: list[dict[str, object]] = [
        {
            "items": [
                item(2 * number + one, DAY.start + timedelta(hours=number)) for one in range(2 if number < 2 else 1)
            ],
            "next": None if number == 2 else f"https://source.test/items?page={number}",
        }
        for number in range(3)
    ]
    planned = plan(engine, spec, DAY, Estimate())
    with Door(RateGate(engine), transport=served(spec, pages)) as door:
        executor = Executor(engine, lambda found: HttpSource(found, door, engine, now=lambda: NOW), clock=lambda: NOW)
        assert executor.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    batches = rows_of(engine, ing_task_run_batch)
    assert len(batches) == 3
    for batch in batches:
        replay = replay_request(load_batch(engine, batch.run_id, batch.batch_no))
        assert replay.is_same, (replay.stored, replay.rebuilt)
        assert replay.context.expr_hash == batch.expr_hash
    assert len(rows_of(engine, ing_task_run_batch)) == 3, "nothing was written"


def test_an_update_is_rebuilt_with_its_ids(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(
        SPEC,
        detail=replace(SPEC.search, endpoint_name="by_id"),
        operation=Operation.UPDATE,
        update_buckets=1,
        batching=replace(SPEC.batching, id_batch_size=1),
    )
    asked_again(engine, spec, MemorySource(spec.pagination, []), ["a", "b"])
    [first, second] = rows_of(engine, ing_task_run_batch)
    assert load_batch(engine, first.run_id, 1).names["ids"] == ["a"]
    assert load_batch(engine, second.run_id, 2).names["ids"] == ["b"]


@pytest.mark.parametrize("fails_at", [1, 2])
def test_the_page_at_which_a_run_failed_is_rebuilt_too(engine: Engine, fails_at: int) -> None:
    spec = quick(replace(SPEC, pagination=replace(SPEC.pagination, page_size=2, total_path=None)))
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        full = {"items": [item(number, DAY.start) for number in range(2)]}
        return httpx.Response(400) if len(sent) == fails_at else httpx.Response(200, json=full)

    planned = plan(engine, spec, DAY, Estimate())
    with Door(RateGate(engine), transport=httpx.MockTransport(answer)) as door:
        executor = Executor(engine, lambda found: HttpSource(found, door, engine, now=lambda: NOW), clock=lambda: NOW)
        assert executor.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.PARTIAL}
    [run] = rows_of(engine, ing_task_run)
    replay = replay_request(load_batch(engine, run.id, fails_at))
    assert replay.rebuilt == request_digest(sent[-1], NOW) | {"headers": replay.rebuilt["headers"]}
    assert (replay.is_same, replay.context.batch) == (None, None), "nothing was kept of it"
    assert replay.context.error is not None
    assert "status 400" in replay.context.error
    with pytest.raises(IngestError, match=f"run {run.id} has no batch {fails_at + 1}"):
        load_batch(engine, run.id, fails_at + 1)


def test_the_page_at_which_a_task_was_given_up_is_rebuilt_also_where_the_slice_was_begun_again(engine: Engine) -> None:
    """The last of five attempts ends PARTIAL; before it failed, its token had expired."""
    tokens = replace(SPEC.pagination, type=PaginationType.TOKEN, page_size=2, next_token_path="$.next", total_path=None)
    cursor = RequestParam("cursor", "cursor", Location.QUERY, expr="${page.token}")
    assert SPEC.search is not None
    search = replace(SPEC.search, params=(*SPEC.search.params, cursor))
    spec, clock = quick(replace(SPEC, pagination=tokens, search=search)), Clock()
    spec = replace(spec, retry=replace(spec.retry, max_attempts=1))
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if len(sent) == 1:
            return httpx.Response(200, json={"items": [item(0, DAY.start), item(1, DAY.start)], "next": "a"})
        return httpx.Response(404 if len(sent) == 2 else 503)

    planned = plan(engine, spec, DAY, Estimate())
    with Door(RateGate(engine), transport=httpx.MockTransport(answer)) as door:
        executor = Executor(engine, lambda found: HttpSource(found, door, engine), clock=clock, threads=1)
        for _ in range(MAX_ATTEMPTS + 1):
            executor.drain_everything()
            clock.pass_by(LONGEST_WAIT)
    runs = rows_of(engine, ing_task_run)
    assert [run.status_code for run in runs] == [*[RunStatus.FAILED] * (len(runs) - 1), RunStatus.PARTIAL]
    assert executor.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.PARTIAL}
    for run, request in ((runs[0], sent[2]), (runs[-1], sent[-1])):
        replay = replay_request(load_batch(engine, run.id, 2))
        assert replay.rebuilt["query"] == request_digest(request, NOW)["query"]
        assert "status 503" in str(replay.context.error)


def test_a_request_with_a_time_in_it_is_rebuilt_with_the_time_at_which_it_was_sent(engine: Engine) -> None:
    assert SPEC.search is not None
    stamp = RequestParam("asked", "asked", Location.QUERY, expr="${now()}")
    spec = quick(replace(SPEC, search=replace(SPEC.search, params=(*SPEC.search.params, stamp))))
    planned = plan(engine, spec, DAY, Estimate())
    with Door(RateGate(engine), transport=served(spec, [{"items": [], "total": 0}])) as door:
        # the page is committed later than it was asked for
        earlier = NOW - timedelta(seconds=3)
        executor = Executor(
            engine, lambda found: HttpSource(found, door, engine, now=lambda: earlier), clock=lambda: NOW
        )
        assert executor.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    [batch] = rows_of(engine, ing_task_run_batch)
    replay = replay_request(load_batch(engine, batch.run_id, 1))
    assert dict(replay.rebuilt["query"])["asked"].startswith(f"{earlier:%FT%T}")
    assert replay.is_same, (replay.stored, replay.rebuilt)


def test_a_run_that_does_not_exist_is_said_so(engine: Engine) -> None:
    with pytest.raises(IngestError, match="there is no run 7"):
        load_batch(engine, 7, 3)

"""POST /api/openlineage, the only path of the lineage sink: takes one event or an array of events."""

import json
import logging
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response

from platform_defs.access.principal import Principal
from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.bodies import discard_body, parse_json, read_body
from platform_defs.api.http.errors import ApiError, status_name
from platform_defs.api.http.request_middleware import note_held
from platform_defs.api.http.threads import run_in_thread
from platform_defs.api.lineage.service import MAX_LETTERS, LineageService
from platform_defs.errors import PlatformError
from platform_defs.lineage.errors import EventRefused
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.intake.intake import IntakeResult
from platform_defs.lineage.sink.answers import RATE_LIMITED, TOO_LATE, Answer, outcome_label, store_down
from platform_defs.lineage.sink.commit import is_store_unavailable
from platform_defs.lineage.sink.store_health import DATABASE, is_refusal

log = logging.getLogger(__name__)

PATH = "/api/openlineage"
SCOPE = "lineage:write"
RETRY_AFTER = {"Retry-After": "1"}

router = APIRouter(tags=["lineage"])
_authorized = RequiresScope(SCOPE)


async def received_at() -> float:
    # FastAPI would call a function that is not async in a thread, and the time would include waiting for that thread
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """The events of a request body; an event that was refused has its answer in place of an intake result."""

    is_array: bool
    payloads: list[Any]
    results: list[IntakeResult | Answer]


# an event that any client might send
EXAMPLE = {
    "eventType": "COMPLETE",
    "eventTime": "2026-11-17T06:00:00Z",
    "producer": "https://example.com/nightly",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "run": {"runId": "0192f7c4-7f00-7000-8000-000000000001"},
    "job": {"namespace": "shop", "name": "daily_orders"},
    "inputs": [{"namespace": "mysql://db.example.com:3306", "name": "shop.orders"}],
    "outputs": [{"namespace": "mysql://db.example.com:3306", "name": "mart.daily_orders"}],
}


@router.post(
    PATH,
    status_code=201,
    response_model=None,
    summary="Post one OpenLineage event, or an array of them",
    responses={
        207: {"description": "Some events of an array were refused; `failed` says which and why"},
        400: {"description": "Names the field and what was expected"},
        413: {"description": "The body or one event is too large"},
        503: {"description": "Not stored, or not wholly: send it again after Retry-After seconds"},
    },
    openapi_extra={
        **openapi_security(SCOPE),
        "requestBody": {
            "required": True,
            "description": "A RunEvent, DatasetEvent or JobEvent, or an array of them; may be gzipped.",
            "content": {"application/json": {"schema": {"type": ["object", "array"]}, "example": EXAMPLE}},
        },
    },
)
async def post_event(
    request: Request,
    # This dependency stands before authentication, whose duration counts against the request's deadline.
    received: Annotated[float, Depends(received_at)],
    principal: Annotated[Principal, Depends(_authorized)],
) -> JSONResponse:
    service: LineageService = request.app.state.lineage
    if service.health.holds:
        note_held(request)
    if not await service.health.wait_for_return(received + service.deadline_s):
        await discard_body(request)
        return _single_response(_count_refusal(service, principal, service.health.refusal))
    spent = time.monotonic() - received
    body = await read_body(request, request.app.state.settings.body_limit)
    until = time.monotonic() + service.deadline_s - spent
    try:
        steps = _parse_body(service, principal, body)
        parsed = await service.read(principal, body, steps, seconds=max(0.0, until - time.monotonic()))
    except TimeoutError:
        return _single_response(TOO_LATE)
    except ApiError as error:
        answer = _count_refusal(service, principal, Answer(error.status, error.name, error.message, poison=True))
        if not answer.poison:
            return _single_response(answer)
        await _keep_refusals(service, principal, [Refusal(body.decode("utf-8", "replace"), error.message)], until)
        raise
    prepared = [result.prepared for result in parsed.results if isinstance(result, IntakeResult)]
    written = iter(await service.sink.submit(prepared, until=until))
    answers = [next(written) if isinstance(result, IntakeResult) else result for result in parsed.results]
    poisons = [index for index, answer in enumerate(answers) if answer.poison]
    refusals = [
        Refusal(_payload_text(parsed.payloads[index]), answers[index].message) for index in poisons[:MAX_LETTERS]
    ]
    await _keep_refusals(service, principal, refusals, until, omitted=len(poisons) - len(refusals))
    if parsed.is_array:
        return _array_response(answers)
    return _single_response(answers[0], parsed.results[0])


async def post_directly(request: Request) -> Response:
    """The same without the framework's dependencies."""
    received = time.monotonic()
    principal = await _authorized(request)
    return await post_event(request, received, principal)


def _parse_body(service: LineageService, principal: Principal, body: bytes) -> Generator[None, None, ParsedBody]:
    """Runs in a thread, because parsing takes time and an unknown tenant is looked up in the database.

    Between the events of an array other tenants have their turn, and reading ends if the request is answered already.
    """
    value = parse_json(body)
    is_array = isinstance(value, list)
    payloads = value if is_array else [value]
    results: list[IntakeResult | Answer] = []
    for payload in payloads:
        if is_array:
            yield
        results.append(_prepare(service, principal, payload))
    return ParsedBody(is_array, payloads, results)


def _prepare(service: LineageService, principal: Principal, payload: Any) -> IntakeResult | Answer:
    try:
        result = service.intake.prepare(principal, payload)
    except EventRefused as error:
        return _count_refusal(service, principal, Answer(error.code, error.status, str(error), poison=True))
    except (PlatformError, SQLAlchemyError) as error:
        if not is_store_unavailable(error):
            raise
        return store_down([DATABASE], {DATABASE} if is_refusal(error) else set())
    if result.prepared.ahead:
        service.metrics.events_ahead.labels(str(result.prepared.tenant.id)).inc()
        log.warning(
            "an event of tenant %d (producer %s, job %s) claims the time %s; it is ordered by its arrival",
            result.prepared.tenant.id,
            result.event.producer,
            result.event.job_name,
            result.event.event_time.isoformat(),
        )
    if result.unknown_operation:
        service.metrics.unknown_operations.labels(str(result.prepared.tenant.id)).inc()
    return result


def _count_refusal(service: LineageService, principal: Principal, answer: Answer) -> Answer:
    """The answer for a refused event. Refused events use up the tenant's rate like accepted ones."""
    tenant = principal.tenant
    if tenant is not None and not service.buckets.take(tenant.id):
        answer = RATE_LIMITED
    service.metrics.events.labels(str(tenant.id) if tenant else "", outcome_label(answer)).inc()
    return answer


async def _keep_refusals(
    service: LineageService, principal: Principal, refusals: Sequence[Refusal], until: float, *, omitted: int = 0
) -> None:
    if refusals:
        try:
            await run_in_thread(
                lambda: service.keep_refusals(principal, refusals, omitted=omitted),
                seconds=max(0.0, until - time.monotonic()),
                limiter=service.writers,
            )
        except TimeoutError:
            return  # the thread goes on and stores the dead letters; the client must not wait for it


def _single_response(answer: Answer, result: IntakeResult | Answer | None = None) -> JSONResponse:
    if answer.accepted and isinstance(result, IntakeResult):
        event = result.event
        content = {
            "status": answer.status,
            "eventType": str(event.kind),
            "runId": event.run_id,
            "tenantId": result.prepared.tenant.id,
        }
        return JSONResponse(content, status_code=201)
    return JSONResponse(
        {"status": answer.status, "message": answer.message},
        status_code=answer.code,
        headers=RETRY_AFTER if answer.retriable else None,
    )


def _array_response(answers: Sequence[Answer]) -> JSONResponse:
    """201 if all events were accepted, 503 if every failed event may be sent again, 400 or 500 if none can ever be
    accepted, else 207."""
    failed = [(index, answer) for index, answer in enumerate(answers) if not answer.accepted]
    code, headers = 201, None
    if failed and all(answer.retriable for _, answer in failed):
        code, headers = 503, RETRY_AFTER
    elif failed and len(failed) == len(answers) and not any(answer.retriable for _, answer in failed):
        code = 400 if any(answer.code < 500 for _, answer in failed) else 500
    elif failed:
        code = 207
    content = {
        "status": "accepted" if code in (201, 207) else status_name(code),
        "accepted": len(answers) - len(failed),
        "failed": [{"index": index, "status": answer.status, "message": answer.message} for index, answer in failed],
    }
    return JSONResponse(content, status_code=code, headers=headers)


def _payload_text(payload: Any) -> str:
    # json.dumps escapes lone surrogates, which may be the reason of the refusal and which no column can hold
    return json.dumps(payload)

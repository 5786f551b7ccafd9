"""The OpenLineage sink's one path: POST /api/openlineage, for one event or an array of them."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse

from platform_defs.access.principal import Principal
from platform_defs.api.http.auth import Requires, secured
from platform_defs.api.http.bodies import parse_json, read_body
from platform_defs.api.http.errors import ApiError, status_name
from platform_defs.api.http.threads import off_loop
from platform_defs.api.lineage.service import MAX_LETTERS, LineageService
from platform_defs.errors import PlatformError
from platform_defs.lineage.errors import EventRefused
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.intake.intake import Taken
from platform_defs.lineage.sink.answers import RATE_LIMITED, STORE_DOWN, TOO_LATE, Answer, outcome_label
from platform_defs.lineage.sink.commit import is_unavailable

SCOPE = "lineage:write"
RETRY_AFTER = {"Retry-After": "1"}

router = APIRouter(tags=["lineage"])


async def arrival() -> float:
    # async although it waits for nothing: FastAPI would call it in a thread
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Read:
    """A body: its events as they were understood, or the answer of each that was not."""

    batch: bool
    payloads: list[Any]
    found: list[Taken | Answer]


@router.post(
    "/api/openlineage",
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
        **secured(SCOPE),
        "requestBody": {
            "required": True,
            "description": "A RunEvent, DatasetEvent or JobEvent, or an array of them; may be gzipped.",
            "content": {"application/json": {"schema": {"type": ["object", "array"]}}},
        },
    },
)
async def post_event(
    request: Request,
    # in this order: what authentication takes is taken from the time that the client gives us
    arrived: Annotated[float, Depends(arrival)],
    principal: Annotated[Principal, Depends(Requires(SCOPE))],
) -> JSONResponse:
    service: LineageService = request.app.state.lineage
    spent = time.monotonic() - arrived
    body = await read_body(request, request.app.state.settings.body_limit)
    until = time.monotonic() + service.deadline_s - spent
    try:
        read = await off_loop(
            lambda: _read(service, principal, body), seconds=max(0.0, until - time.monotonic()), limiter=service.readers
        )
    except TimeoutError:
        return _single(TOO_LATE)
    except ApiError as error:
        refused = _refused(service, principal, Answer(error.status, error.name, error.message, poison=True))
        if not refused.poison:
            return _single(refused)
        await _keep(service, principal, [Refusal(body.decode("utf-8", "replace"), error.message)], until)
        raise
    items = [found.item for found in read.found if isinstance(found, Taken)]
    written = iter(await service.sink.submit(items, until=until))
    answers = [next(written) if isinstance(found, Taken) else found for found in read.found]
    poisons = [index for index, answer in enumerate(answers) if answer.poison]
    refusals = [Refusal(_text(read.payloads[index]), answers[index].message) for index in poisons[:MAX_LETTERS]]
    await _keep(service, principal, refusals, until, omitted=len(poisons) - len(refusals))
    if read.batch:
        return _batch(answers)
    return _single(answers[0], read.found[0])


def _read(service: LineageService, principal: Principal, body: bytes) -> Read:
    """Off the event loop: parsing, and perhaps a look at the tenants on record."""
    value = parse_json(body)
    batch = isinstance(value, list)
    payloads = value if batch else [value]
    return Read(batch, payloads, [_take(service, principal, payload) for payload in payloads])


def _take(service: LineageService, principal: Principal, payload: Any) -> Taken | Answer:
    try:
        taken = service.intake.take(principal, payload)
    except EventRefused as error:
        return _refused(service, principal, Answer(error.code, error.status, str(error), poison=True))
    except (PlatformError, SQLAlchemyError) as error:
        if not is_unavailable(error):
            raise
        return STORE_DOWN
    if taken.unknown_operation:
        service.measures.unknown_operations.labels(str(taken.item.tenant.id)).inc()
    return taken


def _refused(service: LineageService, principal: Principal, answer: Answer) -> Answer:
    """Mistakes count too: a tenant that may send no more events may make none either."""
    tenant = principal.tenant
    if tenant is not None and not service.buckets.take(tenant.id):
        answer = RATE_LIMITED
    service.measures.events.labels(str(tenant.id) if tenant else "", outcome_label(answer)).inc()
    return answer


async def _keep(
    service: LineageService, principal: Principal, refusals: Sequence[Refusal], until: float, *, omitted: int = 0
) -> None:
    if refusals:
        try:
            await off_loop(
                lambda: service.keep(principal, refusals, omitted=omitted),
                seconds=max(0.0, until - time.monotonic()),
                limiter=service.writers,
            )
        except TimeoutError:
            return  # the thread goes on; the client must not wait for it


def _single(answer: Answer, found: Taken | Answer | None = None) -> JSONResponse:
    if answer.accepted and isinstance(found, Taken):
        event = found.event
        content = {
            "status": answer.status,
            "eventType": str(event.kind),
            "runId": event.run_id,
            "tenantId": found.item.tenant.id,
        }
        return JSONResponse(content, status_code=201)
    return JSONResponse(
        {"status": answer.status, "message": answer.message},
        status_code=answer.code,
        headers=RETRY_AFTER if answer.retriable else None,
    )


def _batch(answers: Sequence[Answer]) -> JSONResponse:
    """201, or: 503 if sending all of it again would help, 400 if nothing of it can be taken, else 207."""
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


def _text(payload: Any) -> str:
    # escaped: a lone surrogate, which may be the reason of the refusal, survives as text
    return json.dumps(payload)

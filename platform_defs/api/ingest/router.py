"""POST /api/v1/ingest/{code}/{endpoint}/signals: a downstream system asks for records to be fetched again."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from platform_defs.access.principal import Principal
from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.bodies import JsonBody
from platform_defs.api.http.errors import ApiError
from platform_defs.ingest.errors import UnknownEndpoint
from platform_defs.ingest.fetching.reading import MAX_PROVIDER_ID
from platform_defs.ingest.planning.signals import ask_again

SCOPE = "ingest:write"
MAX_IDS = 1000
MAX_REASON = 512

_BODY = {
    "type": "object",
    "required": ["ids"],
    "properties": {
        "ids": {
            "type": "array",
            "items": {"type": "string", "maxLength": MAX_PROVIDER_ID},
            "minItems": 1,
            "maxItems": MAX_IDS,
            "description": "Ids of records, as the source writes them",
        },
        "reason": {"type": "string", "maxLength": MAX_REASON},
    },
    "example": {"ids": ["40000001"], "reason": "retracted"},
}

router = APIRouter(prefix="/api/v1/ingest", tags=["ingest"])


@router.post(
    "/{code}/{endpoint}/signals",
    status_code=202,
    response_model=None,
    summary="Ask for records to be fetched again, whatever their age",
    description="At most 1,000 ids. The next update of their buckets fetches the records, within a minute or so.",
    openapi_extra={
        **openapi_security(SCOPE),
        "requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}},
    },
)
async def signal(
    request: Request,
    # the examples are of the demo: the command of /docs works there as it stands
    code: Annotated[str, Path(examples=["demo_pubmed"])],
    endpoint: Annotated[str, Path(examples=["search"])],
    principal: Annotated[Principal, Depends(RequiresScope(SCOPE))],
    body: JsonBody,
) -> JSONResponse:
    ids, reason = _parse_signals(body)
    engine = request.app.state.engine

    def write() -> int:
        now, name = datetime.now(UTC), principal.name[:128]
        try:
            return ask_again(engine, code, endpoint, ids, reason=reason, requested_by=name, now=now)
        except UnknownEndpoint as error:
            raise ApiError(404, str(error)) from None

    return JSONResponse({"accepted": await run_in_threadpool(write)}, status_code=202)


def _parse_signals(body: Any) -> tuple[list[str], str | None]:
    if not isinstance(body, dict):
        raise ApiError(400, "body: expected a JSON object with ids")
    ids, reason = body.get("ids"), body.get("reason")
    if not isinstance(ids, list) or not 0 < len(ids) <= MAX_IDS:
        raise ApiError(400, f"ids: expected a list of 1 to {MAX_IDS} ids")
    for number, each in enumerate(ids):
        if not isinstance(each, str) or not 0 < len(each) <= MAX_PROVIDER_ID:
            raise ApiError(400, f"ids[{number}]: expected a text of 1 to {MAX_PROVIDER_ID} characters")
    if reason is not None and not (isinstance(reason, str) and len(reason) <= MAX_REASON):
        raise ApiError(400, f"reason: expected a text of at most {MAX_REASON} characters")
    return ids, reason

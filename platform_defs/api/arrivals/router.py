"""POST /api/open/kpi/srcTableComplete: an ETL job reports that a source table is complete for a batch."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse

from platform_defs.access.principal import Principal
from platform_defs.api.arrivals.service import ArrivalService
from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.bodies import JsonBody
from platform_defs.api.http.errors import ApiError, store_down
from platform_defs.arrivals.errors import IN_PROGRESS, NO_DEPENDENT_MODEL, InvalidArrival
from platform_defs.arrivals.executions.task_log import Task, TaskStatus
from platform_defs.arrivals.intake import ArrivalOutcome, parse_arrival

SCOPE = "arrivals:write"
MAX_WAIT_S = 600
DEFAULT_WAIT_S = 60

router = APIRouter(tags=["arrivals"])

_MODEL = {
    "type": "object",
    "required": ["modelId", "opTime", "status"],
    "properties": {
        "modelId": {"type": "string"},
        "opTime": {"type": "string"},
        "status": {
            "enum": ["SUCCESS", "FAILED", "SKIPPED", "RUNNING"],
            "description": "SKIPPED: it was being executed already, and runs once more for this arrival. "
            "RUNNING: it outlasted `wait`.",
        },
        "taskId": {
            "type": "integer",
            "description": "With RUNNING: GET /api/open/kpi/tasks/{taskId} says how it ended",
        },
        "computeCount": {"type": "integer", "description": "Rows of the model's query; with SUCCESS"},
        "storageCount": {"type": "integer", "description": "Values that were stored; with SUCCESS"},
        "message": {"type": "string", "description": f"With FAILED the error, with SKIPPED `{IN_PROGRESS}`"},
    },
}
_ANSWER = {
    "type": "object",
    "required": ["status"],
    "properties": {
        "status": {"enum": ["SUCCESS", "IGNORED"], "description": "IGNORED where no model depends on the table"},
        "message": {"type": "string", "description": f"With IGNORED `{NO_DEPENDENT_MODEL}`"},
        "triggeredModels": {"type": "array", "items": _MODEL, "description": "Published models whose tables arrived"},
        "waitingModels": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Published models that wait for another table",
        },
        "skippedModels": {"type": "array", "items": {"type": "string"}, "description": "Models that are unpublished"},
    },
}


@router.post(
    "/api/open/kpi/srcTableComplete",
    response_model=None,
    summary="Report that a source table is complete for a batch",
    description="Records the arrival, runs every published model whose tables have all arrived, and answers when they "
    "have finished. Reporting a table again means that its ETL was done again: its models run again.",
    responses={
        200: {"description": "The arrival is recorded", "content": {"application/json": {"schema": _ANSWER}}},
        400: {"description": "Names the field and what was expected"},
        503: {"description": "Not recorded, or not known to be: send it again after Retry-After seconds"},
    },
    openapi_extra={
        **openapi_security(SCOPE),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["srcTableName", "opTime"],
                        "properties": {
                            "srcTableName": {"type": "string", "maxLength": 255, "example": "DW_FACT_ORDER_D"},
                            "opTime": {
                                "type": "string",
                                "description": "The batch: 4 to 14 digits, dashes are tolerated",
                                "example": "20251219",
                            },
                        },
                    }
                }
            },
        },
    },
)
async def src_table_complete(
    request: Request,
    principal: Annotated[Principal, Depends(RequiresScope(SCOPE))],
    body: JsonBody,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for models that run")
    ] = DEFAULT_WAIT_S,
) -> JSONResponse:
    service: ArrivalService = request.app.state.arrivals
    try:
        arrival = parse_arrival(body)
    except InvalidArrival as error:
        raise ApiError(400, str(error)) from None
    try:
        outcome = await service.record(arrival)
    except TimeoutError:
        raise store_down() from None
    ended = await service.wait_for_tasks(list(outcome.queued.values()), wait)
    if outcome.depended_on:
        service.report_soon()
    return JSONResponse(_answer(outcome, ended, arrival.op_time))


def _answer(outcome: ArrivalOutcome, ended: dict[int, Task], op_time: str) -> dict[str, Any]:
    """The body of the answer, as the seed defines it."""
    if not outcome.depended_on:
        return {"status": "IGNORED", "message": NO_DEPENDENT_MODEL}
    triggered = [_triggered_model(task) for task in outcome.current]
    for model_id, task_id in outcome.queued.items():
        task = ended.get(task_id)
        triggered.append(
            {"modelId": model_id, "opTime": op_time, "status": "RUNNING", "taskId": task_id}
            if task is None
            else _triggered_model(task)
        )
    triggered += [
        {"modelId": model_id, "opTime": op_time, "status": "SKIPPED", "message": IN_PROGRESS}
        for model_id in outcome.busy
    ]
    return {
        "status": "SUCCESS",
        "triggeredModels": sorted(triggered, key=lambda model: str(model["modelId"])),
        "waitingModels": outcome.waiting,
        "skippedModels": outcome.unpublished,
    }


def _triggered_model(task: Task) -> dict[str, Any]:
    """The entry of `triggeredModels` for a task that has ended."""
    answer: dict[str, Any] = {"modelId": task.model_id, "opTime": task.op_time, "status": str(task.status)}
    if task.status is TaskStatus.SUCCESS:
        return answer | {"computeCount": task.compute_count, "storageCount": task.storage_count}
    return answer | {"message": task.message or "no reason was recorded"}

"""Results over HTTP: tasks, how batches stand, and values of KPIs, under /api/open/kpi."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request
from sqlalchemy import Connection, Engine

from platform_defs.access.principal import Principal
from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.errors import ApiError
from platform_defs.api.http.paths import path_id
from platform_defs.arrivals.errors import InvalidQuery, UnknownModel, UnknownTask
from platform_defs.arrivals.op_time import batch_of
from platform_defs.arrivals.results.batches import find_batch, json_batch
from platform_defs.arrivals.results.tasks import find_task, json_task
from platform_defs.arrivals.results.values import MAX_CELLS, json_value, read_values
from platform_defs.store.engine import read

SCOPE = "arrivals:read"
BASE = "/api/open/kpi"
MODEL = f"{BASE}/models/{path_id('model_id')}"
MAX_TASK_ID = 2**31 - 1

T = TypeVar("T")
Caller = Annotated[Principal, Depends(RequiresScope(SCOPE))]

# The examples are of the demo: the commands of /docs work there as they stand.
ModelId = Annotated[str, Path(examples=["demo_daily_sales"])]
OpTime = Annotated[str, Path(examples=["20251219"])]
TaskId = Annotated[str, Path(examples=["1"])]

router = APIRouter(tags=["arrivals"])
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such model or task"}}


@router.get(
    f"{BASE}/tasks/{path_id('task_id')}",
    response_model=None,
    summary="One execution of a model for a batch",
    description="Its status, why it was made, what it read, and with `nextTaskId` the next execution of its batch.",
    responses=_NOT_FOUND,
    openapi_extra=openapi_security(SCOPE),
)
def task(request: Request, caller: Caller, task_id: TaskId) -> dict[str, Any]:
    if not (task_id.isascii() and task_id.isdecimal()) or int(task_id) > MAX_TASK_ID:
        raise ApiError(404, f"no task has the id {task_id}")
    return json_task(_read(request, lambda connection: find_task(connection, int(task_id))))


@router.get(
    f"{MODEL}/batches/{path_id('op_time')}",
    response_model=None,
    summary="How a batch of a model stands",
    description="Which tables have arrived and which are missing, whether the model is due, and its last execution.",
    responses={**_NOT_FOUND, 400: {"description": "No batch can have this opTime"}},
    openapi_extra=openapi_security(SCOPE),
)
def batch(request: Request, caller: Caller, model_id: ModelId, op_time: OpTime) -> dict[str, Any]:
    return json_batch(_read(request, lambda connection: find_batch(connection, model_id, batch_of(op_time))))


@router.get(
    f"{MODEL}/values",
    response_model=None,
    summary="Values of a model's KPIs, and of the computed KPIs that build on them",
    description="In order of opTime. A value is a decimal number as text; a computed KPI without a value is null.",
    responses={**_NOT_FOUND, 400: {"description": "Names the parameter and what was expected"}},
    openapi_extra=openapi_security(SCOPE),
)
def values(
    request: Request,
    caller: Caller,
    model_id: ModelId,
    op_time: Annotated[str | None, Query(alias="opTime", description="Only this batch")] = None,
    kpi_id: Annotated[str | None, Query(alias="kpiId", description="Only this KPI")] = None,
    cursor: Annotated[str | None, Query(description="The `next` of the page before")] = None,
    limit: Annotated[
        int, Query(ge=1, le=MAX_CELLS, description="Combinations of a batch and dimensions in a page")
    ] = 100,
) -> dict[str, Any]:
    wanted = None if op_time is None else batch_of(op_time)
    page = _read(
        request,
        lambda connection: read_values(connection, model_id, op_time=wanted, kpi_id=kpi_id, cursor=cursor, limit=limit),
    )
    return {"values": [json_value(value) for value in page.values], "next": page.next_cursor}


def _read(request: Request, look: Callable[[Connection], T]) -> T:
    engine: Engine = request.app.state.engine
    try:
        return read(engine, look)
    except InvalidQuery as error:
        raise ApiError(400, str(error)) from None
    except (UnknownModel, UnknownTask) as error:
        raise ApiError(404, str(error)) from None

"""Table arrival's path: POST /api/open/kpi/srcTableComplete."""

from typing import Annotated, NoReturn

from fastapi import APIRouter, Depends

from platform_defs.access.principal import Principal
from platform_defs.api.auth import Requires, secured
from platform_defs.api.bodies import JsonBody
from platform_defs.api.errors import ApiError

SCOPE = "arrivals:write"

router = APIRouter(tags=["arrivals"])


@router.post(
    "/api/open/kpi/srcTableComplete",
    response_model=None,
    summary="Report that a source table is complete for a batch",
    openapi_extra={
        **secured(SCOPE),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["srcTableName", "opTime"],
                        "properties": {"srcTableName": {"type": "string"}, "opTime": {"type": "string"}},
                    }
                }
            },
        },
    },
)
async def src_table_complete(principal: Annotated[Principal, Depends(Requires(SCOPE))], arrival: JsonBody) -> NoReturn:
    raise ApiError(501, "table arrival is not part of this version yet; nothing was recorded")

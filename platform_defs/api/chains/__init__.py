"""Job chains over HTTP, registered with the API as `SYSTEM`."""

from platform_defs.api.chains import definitions, runs
from platform_defs.api.chains.metrics import collectors
from platform_defs.api.chains.schemas import schemas
from platform_defs.api.chains.service import ChainService
from platform_defs.api.http.errors import error_and_code
from platform_defs.api.system import ApiSystem

SYSTEM = ApiSystem(
    name="chains",
    routers=(definitions.router, runs.router),
    prefixes=("/api/v1",),
    error_shape=error_and_code,
    open_service=lambda api: ChainService(api.settings, api.engine),
    collectors=collectors,
    schemas=schemas,
)

"""Job chains over HTTP, registered with the API as `SYSTEM`."""

from platform_defs.api.chains import router
from platform_defs.api.http.errors import error_and_code
from platform_defs.api.system import ApiSystem

SYSTEM = ApiSystem(name="chains", routers=(router.router,), prefixes=("/api/v1",), error_shape=error_and_code)

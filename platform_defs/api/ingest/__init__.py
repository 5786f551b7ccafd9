"""Ingest over HTTP, registered with the API as `SYSTEM`."""

from platform_defs.api.http.errors import error_and_code
from platform_defs.api.ingest import metrics, router
from platform_defs.api.system import ApiSystem

SYSTEM = ApiSystem(
    name="ingest",
    routers=(router.router,),
    prefixes=("/api/v1/ingest",),
    error_shape=error_and_code,
    collectors=metrics.collectors,
)

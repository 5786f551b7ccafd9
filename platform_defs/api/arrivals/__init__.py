"""Table arrival and webhooks over HTTP, registered with the API as `SYSTEM`."""

from platform_defs.api.arrivals import results, router, webhooks
from platform_defs.api.arrivals.metrics import REST, ArrivalsCollector
from platform_defs.api.arrivals.service import ArrivalService
from platform_defs.api.http.errors import status_and_message
from platform_defs.api.observe.bounded_metrics import NamedCollector
from platform_defs.api.system import ApiSystem

SYSTEM = ApiSystem(
    name="arrivals",
    routers=(router.router, results.router, webhooks.router),
    prefixes=("/api/open",),
    error_shape=status_and_message,
    open_service=lambda api: ArrivalService(api.settings, api.engine, api.registry),
    collectors=lambda api: [NamedCollector("arrivals", ArrivalsCollector(api.engine, api.settings), rest=REST)],
)

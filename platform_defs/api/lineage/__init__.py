"""The OpenLineage sink over HTTP, registered with the API as `SYSTEM`."""

from functools import partial

from platform_defs.api.http.errors import status_and_message
from platform_defs.api.lineage import router
from platform_defs.api.lineage.metrics import LineageCollector, recovery_state
from platform_defs.api.lineage.service import LineageService
from platform_defs.api.observe.bounded_metrics import NamedCollector
from platform_defs.api.system import ApiSystem

SYSTEM = ApiSystem(
    name="lineage",
    routers=(router.router,),
    prefixes=("/api/openlineage",),
    error_shape=status_and_message,
    direct={("POST", router.PATH): router.post_directly},
    open_service=lambda api: LineageService(api.settings, api.engine, api.graph, api.registry),
    collectors=lambda api: [NamedCollector("lineage", LineageCollector(api.engine))],
    checks=lambda api: {"lineage": partial(recovery_state, api.engine)},
)

"""/healthz says that the process lives; /readyz says whether database, migrations, graph and runner let it work."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from anyio import CapacityLimiter
from fastapi import APIRouter, Request
from sqlalchemy import Engine, text
from starlette.responses import JSONResponse

from platform_defs.api.http.threads import run_in_thread
from platform_defs.errors import one_line
from platform_defs.graph.port import Graph
from platform_defs.selfcheck import DATABASE_HEADER, SERVES_DATABASE, database_digest
from platform_defs.store import migrate
from platform_defs.store.engine import read
from platform_defs.store.errors import SchemaAhead, SchemaBehind
from platform_defs.work import runners

log = logging.getLogger(__name__)

CHECK_TIMEOUT_S = 2.0
# Requests need these parts. A problem with another part is shown, but is no reason to send requests elsewhere.
NEEDED = ("database", "migrations", "graph")

router = APIRouter(tags=["operations"])


class Readiness:
    """Checks the parts that requests need, each in a thread and with a short time limit."""

    def __init__(self, engine: Engine, graph: Graph, of_systems: Mapping[str, Callable[[], str]]) -> None:
        self._engine = engine
        self._graph = graph
        self.of_systems = of_systems
        # The check of a store that hangs keeps its thread: the limiter of each part bounds the threads it may keep.
        names = ("database", "migrations", "graph", "runner", *of_systems)
        self._limiters = {name: CapacityLimiter(2) for name in names}

    async def check(self) -> dict[str, str]:
        """For each part "ok", or what is wrong with it."""
        checks: dict[str, Callable[[], str]] = {
            "database": self._database,
            "migrations": self._migrations,
            "graph": self._ping_graph,
            "runner": self._runner,
            **self.of_systems,
        }
        found = await asyncio.gather(*(self._run(name, work) for name, work in checks.items()))
        return dict(zip(checks, found, strict=True))

    async def _run(self, name: str, work: Callable[[], str]) -> str:
        try:
            return await run_in_thread(work, seconds=CHECK_TIMEOUT_S, limiter=self._limiters[name])
        except TimeoutError:
            return f"no answer within {CHECK_TIMEOUT_S:.0f} seconds"
        except Exception as error:
            # Anybody may ask /readyz: only the log names addresses and accounts.
            log.warning("%s is not ready: %s: %s", name, type(error).__name__, one_line(error))
            return "does not answer"

    def _database(self) -> str:
        read(self._engine, lambda connection: connection.execute(text("SELECT 1")).scalar_one(), attempts=1)
        return "ok"

    def _migrations(self) -> str:
        try:
            migrate.require_current(self._engine)
        except (SchemaBehind, SchemaAhead) as error:
            return str(error)
        return "ok"

    def _ping_graph(self) -> str:
        self._graph.ping()
        return "ok"

    def _runner(self) -> str:
        alive = runners.living_runners(self._engine, attempts=1)
        errors = [runner.load_error for runner in alive if runner.load_error]
        if alive and not any(runner.definitions for runner in alive):
            return "no definitions are loaded" + (f": {errors[0]}" if errors else " yet")
        if errors:
            return f"goes on with older definitions, because the code location does not load: {errors[0]}"
        if alive:
            return "ok"
        why = runners.why_none_is_alive(self._engine, attempts=1)
        return f"{why}. Until then runs start cold, and rows of work wait for the recovery sensor"


@router.get("/healthz", summary="The process lives")
async def healthz(request: Request) -> dict[str, str | bool]:
    asked = request.headers.get(DATABASE_HEADER)
    if asked is None:
        return {"status": "ok"}
    return {"status": "ok", SERVES_DATABASE: asked == database_digest(request.app.state.engine.url)}


@router.get(
    "/readyz",
    summary="Database, migrations and graph answer; how the runner is",
    responses={503: {"description": "Not ready"}},
)
async def readyz(request: Request) -> JSONResponse:
    readiness: Readiness = request.app.state.readiness
    parts = await readiness.check()
    wrong = [f"{name}: {state}" for name, state in parts.items() if state != "ok" and name in NEEDED]
    if wrong:
        return JSONResponse({"error": "; ".join(wrong), "checks": parts}, status_code=503)
    for name, service in request.app.state.open_services.items():
        if (warmth := service.warmth()) != "ok":
            return JSONResponse({"error": f"{name}: {warmth}", "checks": parts}, status_code=503)
    degraded = any(parts[name] != "ok" for name in readiness.of_systems)
    return JSONResponse({"status": "degraded" if degraded else "ready", "checks": parts})

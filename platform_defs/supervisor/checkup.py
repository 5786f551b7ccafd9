"""Asks every part of a platform whether it answers, and how fast: what `platform selfcheck` shows."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs import dagster_instance, selfcheck
from platform_defs.connections import explain
from platform_defs.errors import PlatformError
from platform_defs.graph.neo4j import Timeouts
from platform_defs.graph.open import open_graph
from platform_defs.settings import Settings
from platform_defs.store.engine import Patience, open_engine
from platform_defs.supervisor import owners, probes
from platform_defs.supervisor.child import Broken, NoAnswer, NotReady
from platform_defs.supervisor.home import is_starting, read_up
from platform_defs.supervisor.processes import local_url
from platform_defs.work import rows, runners
from platform_defs.work.wake import wake

# Dagster itself calls a daemon healthy for half an hour after its last heartbeat; it sends one every 30 s.
HEARTBEAT_S = 120.0
ASK_AGAIN_S = 0.5


@dataclass(frozen=True)
class Part:
    """One part: whether it answers, after how many milliseconds, and what it said."""

    name: str
    ok: bool
    ms: float | None
    detail: str


@dataclass
class Checkup:
    """What was found in a home. `run_id` is the run that the runner executed for it, `found` what that run saw."""

    running: bool
    parts: list[Part] = field(default_factory=list)
    run_id: str | None = None
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.running and all(part.ok for part in self.parts)


def check_platform(settings: Settings, *, timeout_s: float) -> Checkup:
    """Asks the stores, and the processes if any of them runs. Each of these has a third of the run's time to answer.

    With the usual minute none is called broken because the machine is busy, or the UI is loading new definitions. What
    is in a database that does not answer is not asked: asking would only time out again.

    Without `platform up` the processes may have another supervisor: API and UI are asked at the addresses of the
    settings, and count if they are of this platform.
    """
    answer_s = timeout_s / 3
    up, is_coming = read_up(settings.home), is_starting(settings.home)
    found = Checkup(running=up is not None or is_coming or wake(settings.home))
    database = _ask("database", lambda: _database(settings, answer_s))
    found.parts.append(database)
    if settings.graph_url == "embedded" and not database.ok:
        found.parts.append(Part("graph", False, None, "not asked, because it is in the database"))
    else:
        found.parts.append(_ask("graph", lambda: _graph(settings, answer_s)))
    if up is not None:
        found.parts += [_ask_api(str(up["api"]), answer_s), *_ask_dagster(str(up["ui"]), answer_s)]
    elif is_coming:
        found.parts += [Part(name, False, None, "`platform up` is not ready yet") for name in ("api", "ui", "daemon")]
    else:
        api, ui = local_url(settings.api_host, settings.api_port), local_url(settings.ui_host, settings.ui_port)
        own_api = _ask("api", lambda: _once(owners.own_api_probe(settings, api, timeout_s=answer_s), api))
        own_ui = _ask("ui", lambda: _once(owners.own_ui_probe(settings, ui, timeout_s=answer_s), ui))
        found.running = found.running or own_api.ok or own_ui.ok
        if not found.running:
            return found
        found.parts.append(_ask_api(api, answer_s) if own_api.ok else own_api)
        found.parts += _ask_dagster(ui, answer_s) if own_ui.ok else [own_ui, replace(own_ui, name="daemon")]
    if database.ok:
        found.parts.append(_ask("runner", lambda: _runner(settings, found, timeout_s, answer_s)))
    else:
        found.parts.append(Part("runner", False, None, "not asked, because its queue is in the database"))
    return found


def _ask(name: str, work: Callable[[], str]) -> Part:
    began = time.perf_counter()
    try:
        detail = work()
    except (PlatformError, SQLAlchemyError, NotReady, Broken) as error:
        return Part(name, False, None, explain(error))
    return Part(name, True, round((time.perf_counter() - began) * 1000, 1), detail)


def _ask_api(api: str, answer_s: float) -> Part:
    return _ask("api", lambda: _probe(probes.http_probe(f"{api}/readyz", timeout_s=answer_s), api, answer_s))


def _ask_dagster(ui: str, answer_s: float) -> list[Part]:
    """The UI, and the daemon, of which the UI tells."""
    return [_ask("ui", lambda: _ui(ui, answer_s)), _ask("daemon", lambda: _daemon(ui, answer_s))]


def _once(probe: probes.Probe, detail: str) -> str:
    probe(0.0)
    return detail


def _probe(probe: probes.Probe, detail: str, answer_s: float, *, since: float = 0.0) -> str:
    """Asks again, for a while, a part that answers that it is not ready."""
    give_up_at = time.monotonic() + answer_s
    while True:
        try:
            probe(since)
            return detail
        except NoAnswer:
            raise
        except NotReady:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(ASK_AGAIN_S)


def _ui(ui: str, answer_s: float) -> str:
    return _probe(probes.webserver_probe(ui, dagster_instance.LOCATION, timeout_s=answer_s), ui, answer_s)


@contextmanager
def _engine(settings: Settings, answer_s: float) -> Iterator[Engine]:
    """Connecting takes so long at most, and so does each statement, in whole seconds; it connects on first use."""
    seconds = math.ceil(answer_s)
    patience = Patience(connect=seconds, pool=answer_s, sqlite_busy=answer_s)
    engine = open_engine(settings.database_url, pool_size=1, socket_timeout=seconds, patience=patience)
    try:
        yield engine
    finally:
        engine.dispose()


def _database(settings: Settings, answer_s: float) -> str:
    with _engine(settings, answer_s) as engine:
        # once: each further attempt would have the whole time again
        report = selfcheck.check_database(engine, attempts=1)
    return f"{report.server} at revision {report.revision}; its clock is {report.clock_skew_s:+g} s off"


def _graph(settings: Settings, answer_s: float) -> str:
    # once, as the database
    timeouts = Timeouts(connect=answer_s, acquire=answer_s, transaction=answer_s, retry=0.0)
    with _engine(settings, answer_s) as engine, closing(open_graph(settings, engine, timeouts=timeouts)) as graph:
        selfcheck.check_graph(graph)
    return settings.graph_url.rpartition("@")[2]


def _daemon(ui: str, answer_s: float) -> str:
    detail = f"every daemon sent a heartbeat in the last {HEARTBEAT_S:.0f} s"
    return _probe(probes.daemon_probe(ui, timeout_s=answer_s), detail, answer_s, since=time.time() - HEARTBEAT_S)


def _runner(settings: Settings, found: Checkup, timeout_s: float, answer_s: float) -> str:
    """Has the runner execute the job `selfcheck`; without the runner its recovery would do it, in its own time."""
    with _engine(settings, answer_s) as engine:
        warm = dagster_instance.uses_warm_launcher(settings)
        if warm and not runners.living_runners(engine):
            raise NotReady(runners.why_none_is_alive(engine))
        row = rows.enqueue(engine, "selfcheck", {})
        wake(settings.home)
        done = rows.wait(engine, row.id, timeout_s)
    found.run_id, found.found = done.run_id, done.result
    if done.status is not rows.Status.SUCCEEDED:
        raise NotReady(f"run {done.run_id} {done.status.lower()}: {done.error}")
    return f"run {done.run_id} succeeded" + ("" if warm else ", by another launcher (PLATFORM_DAGSTER_CONFIG)")

"""Asks every part of a platform whether it answers, and how fast: what `platform selfcheck` shows."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from platform_defs import dagster_instance, selfcheck
from platform_defs.connections import explain, open_database, open_stores
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.supervisor import probes
from platform_defs.supervisor.child import Broken, NoAnswer, NotReady
from platform_defs.supervisor.home import is_starting, read_up
from platform_defs.work import rows, runners
from platform_defs.work.wake import wake

# Dagster itself calls a daemon healthy for half an hour after its last heartbeat; it sends one every 30 s.
HEARTBEAT_S = 120.0
# A part is not called broken because the machine is busy, or because the UI is loading new definitions just now.
ANSWER_S = 20.0
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
    """Asks the stores, and the processes if any of them runs. Each of these has a third of the run's time to answer."""
    answer_s = max(ANSWER_S, timeout_s / 3)
    up = read_up(settings.home)
    found = Checkup(running=up is not None or wake(settings.home) or is_starting(settings.home))
    found.parts += [_ask("database", lambda: _database(settings)), _ask("graph", lambda: _graph(settings))]
    if not found.running:
        return found
    if up is not None:
        api, ui = str(up["api"]), str(up["ui"])
        found.parts += [
            _ask("api", lambda: _probe(probes.http_probe(f"{api}/readyz", timeout_s=answer_s), api, answer_s)),
            _ask("ui", lambda: _ui(ui, answer_s)),
            _ask("daemon", lambda: _daemon(ui, answer_s)),
        ]
    elif is_starting(settings.home):
        found.parts += [Part(name, False, None, "`platform up` is not ready yet") for name in ("api", "ui", "daemon")]
    found.parts.append(_ask("runner", lambda: _runner(settings, found, timeout_s)))
    return found


def _ask(name: str, work: Callable[[], str]) -> Part:
    began = time.perf_counter()
    try:
        detail = work()
    except (PlatformError, SQLAlchemyError, NotReady, Broken) as error:
        return Part(name, False, None, explain(error))
    return Part(name, True, round((time.perf_counter() - began) * 1000, 1), detail)


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


def _database(settings: Settings) -> str:
    with open_database(settings, pool_size=1) as engine:
        report = selfcheck.check_database(engine)
    return f"{report.server} at revision {report.revision}; its clock is {report.clock_skew_s:+g} s off"


def _graph(settings: Settings) -> str:
    with open_stores(settings) as stores:
        selfcheck.check_graph(stores.graph)
    return settings.graph_url.rpartition("@")[2]


def _daemon(ui: str, answer_s: float) -> str:
    detail = f"every daemon sent a heartbeat in the last {HEARTBEAT_S:.0f} s"
    return _probe(probes.daemon_probe(ui, timeout_s=answer_s), detail, answer_s, since=time.time() - HEARTBEAT_S)


def _runner(settings: Settings, found: Checkup, timeout_s: float) -> str:
    """Has the runner execute the job `selfcheck`; without the runner its recovery would do it, in its own time."""
    with open_database(settings, pool_size=1) as engine:
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

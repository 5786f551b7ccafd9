"""Writes the demo, step by step; every step finds what an earlier attempt wrote, and writes only what is missing."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Engine

from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.arrivals.models.life import disable_orphaned_subscriptions
from platform_defs.demo import story
from platform_defs.demo.doors import Api, ui_knows
from platform_defs.demo.lineage import lineage_events
from platform_defs.demo.shop import Calendar, create_shop
from platform_defs.demo.state import DemoError, DemoState, DemoStatus, folder_of, shop_file, write_state

LOOK_S = 0.5
ARRIVAL = "/api/open/kpi/srcTableComplete"
WEBHOOKS = "/api/open/kpi/webhooks"
CHAINS = "/api/v1/chains"


def write_demo(engine: Engine, api: Api, home: Path, state: DemoState, *, webhook: str, zone: ZoneInfo) -> DemoState:
    """Returns the state of the written demo. No step waits for a run: those end in their own time."""
    calendar = Calendar(state.born)
    # First, because the UI takes longest to show its tables.
    api.post("/api/openlineage", lineage_events(state.born))
    create_shop(shop_file(home), calendar)
    _load_models(engine, home, calendar, zone)
    _subscribe(api, webhook)
    chain_ids = _create_chains(api, calendar, state)
    _report_arrivals(api, calendar)
    started = api.post(
        f"{CHAINS}/{chain_ids[story.CLOSE]}:start",
        {"params": {"day": calendar.wrong}},
        key=f"demo-{state.born.isoformat()}",
    )
    written = state.now(DemoStatus.WRITTEN, chain_run=started["runId"])
    write_state(home, written)
    return written


def await_story(api: Api, ui: str, state: DemoState, *, dashboard: Sequence[str] | None, give_up_at: float) -> bool:
    """Waits a little until what the printed lines say is true; False if it is not yet."""
    while not is_story_told(api, ui, state, dashboard=dashboard):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(LOOK_S)
    return True


def is_story_told(api: Api, ui: str, state: DemoState, *, dashboard: Sequence[str] | None) -> bool:
    """Whether batch and node have failed, and the UI knows both and the dashboard, unless it shows no lineage."""
    wrong = Calendar(state.born).wrong
    try:
        last_task = api.get(f"/api/open/kpi/models/{story.SALES}/batches/{wrong}")["lastTask"]
        run = api.get(f"/api/v1/runs/{state.chain_run}")
    except DemoError:
        return False  # the shop is written all the same
    ended = last_task is not None and {last_task["status"], run["status"]} <= {"FAILED", "SUCCESS"}
    return ended and ui_knows(ui, model=story.SALES, batch=wrong, job=f"chain_{story.CORRECT}", table=dashboard)


def _load_models(engine: Engine, home: Path, calendar: Calendar, zone: ZoneInfo) -> None:
    """As `platform models load` and `publish` do; the file stays in the home for its reader."""
    path = folder_of(home) / "models.yaml"
    path.write_text(story.models_file(calendar.last, datetime.now(UTC), zone), encoding="utf-8")
    catalog.save(engine, read_file(path.read_bytes(), str(path)), disable_orphaned_subscriptions)
    for model_id in story.MODELS:
        catalog.publish(engine, model_id)


def _subscribe(api: Api, webhook: str) -> None:
    known = api.get(WEBHOOKS)["subscriptions"]
    if not any(one["kpiId"] == story.SUBSCRIBED_KPI and one["callbackUrl"] == webhook for one in known):
        api.post(WEBHOOKS, {"kpiId": story.SUBSCRIBED_KPI, "callbackUrl": webhook, "retryNum": 1})


def _create_chains(api: Api, calendar: Calendar, state: DemoState) -> dict[str, str]:
    """The ids of the chains by name."""
    ids = {}
    for name, document in story.chain_documents(calendar.wrong).items():
        listed: list[dict[str, Any]] = api.get(CHAINS, keyword=name, size=200)["items"]
        known = [chain["chainId"] for chain in listed if chain["name"] == name]
        ids[name] = known[0] if known else api.post(CHAINS, document)["chainId"]
    return ids


def _report_arrivals(api: Api, calendar: Calendar) -> None:
    """Tables of the last two weeks, the newest batches first; the returns of the last day are late.

    A table that is reported again would be computed again, so only what has not arrived is reported.
    """
    newest_first = calendar.op_times[::-1]
    # the oldest is written last, so if it is there, all are; and none is, if the newest has nothing
    if not _missing(api, newest_first[-1]):
        return
    is_new = _missing(api, newest_first[0]) == set(story.TABLES)
    for op_time in newest_first:
        missing = set(story.TABLES) if is_new else _missing(api, op_time)
        for table in story.TABLES:
            late = table == story.RETURNS and op_time == calendar.last
            if table in missing and not late:
                api.post(ARRIVAL, {"srcTableName": table, "opTime": op_time}, wait=0)


def _missing(api: Api, op_time: str) -> set[str]:
    return {
        table
        for model_id in story.MODELS
        for table in api.get(f"/api/open/kpi/models/{model_id}/batches/{op_time}")["missing"]
    }

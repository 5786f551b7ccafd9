"""Why an execution was made, as the tag `user` of its run says it."""

from platform_defs.arrivals.executions.task_log import Trigger
from platform_defs.arrivals.readiness import Standing
from platform_defs.work.jobs import OPERATOR, RECOVERY

RE_ARRIVAL = "re-arrival"
PUBLISHED = "published"
_TEXTS = {Trigger.AGAIN: RE_ARRIVAL, Trigger.RECOVERY: RECOVERY, Trigger.OPERATOR: OPERATOR}


def trigger_text(why: Trigger, standing: Standing | None = None, table: str | None = None) -> str:
    """`table` is the one whose arrival was reported; without it, the last one to arrive is named."""
    if why in _TEXTS:
        return _TEXTS[why]
    if standing is None or not standing.arrived:
        return str(why).lower()
    if standing.read:
        return RE_ARRIVAL
    (newest, _), at = max(standing.arrived.items(), key=lambda arrival: arrival[1])
    if table is None and standing.published_at is not None and standing.published_at > at:
        return PUBLISHED
    return f"arrival of {table or newest}"

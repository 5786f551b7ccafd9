"""The check `on_time` of a model: which tables have not arrived although they were due."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from platform_defs.arrivals.checks import CheckOutcome
from platform_defs.arrivals.lateness import LateBatch

ON_TIME = "on_time"


def check_outcome(late: Sequence[LateBatch], zone: ZoneInfo) -> CheckOutcome:
    """The outcome for a model with these late batches."""
    if not late:
        return CheckOutcome(True, "all tables that are due have arrived")
    batches = [
        f"batch {batch.op_time} lacks {', '.join(batch.tables)}, due {batch.due_at.astimezone(zone):%F %H:%M %Z}"
        for batch in late
    ]
    return CheckOutcome(
        False,
        "; ".join(batches),
        {
            "opTime": ", ".join(batch.op_time for batch in late),
            "tables": ", ".join(sorted({table for batch in late for table in batch.tables})),
            "what to do": "look at the job that fills the table and reports it: POST /api/open/kpi/srcTableComplete",
        },
    )

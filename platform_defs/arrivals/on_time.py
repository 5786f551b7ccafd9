"""The check `on_time` of a model: what it shows, and which checks need a new evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from platform_defs.arrivals.lateness import LateBatch

ON_TIME = "on_time"
# Dagster takes half a millisecond to say what one check shows.
AT_ONCE = 500


@dataclass(frozen=True)
class CheckOutcome:
    """What an evaluation of the check says."""

    passed: bool
    description: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShownCheck:
    """The check's last evaluation in Dagster."""

    passed: bool
    description: str | None
    # False if the model was materialised since: the UI then no longer shows the evaluation
    is_current: bool


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
        },
    )


def needs_evaluation(outcome: CheckOutcome, shown: ShownCheck | None) -> bool:
    """Whether Dagster shows something else than the outcome, or nothing."""
    return shown is None or not shown.is_current or not _says(shown, outcome)


def is_news(outcome: CheckOutcome, shown: ShownCheck | None) -> bool:
    """Whether the outcome is worth a line in the log: it changed, or the first one is that something is late."""
    return not outcome.passed if shown is None else not _says(shown, outcome)


def _says(shown: ShownCheck, outcome: CheckOutcome) -> bool:
    return (shown.passed, shown.description) == (outcome.passed, outcome.description)


class CheckRotation:
    """Chooses the models whose check is compared with what Dagster shows.

    Models whose late batches changed are chosen at once. The others take turns, because asking Dagster about thousands
    of checks takes longer than a tick may.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._start = 0
        self._shown: Mapping[str, Sequence[LateBatch]] = {}

    def choose(self, late: Mapping[str, Sequence[LateBatch]]) -> dict[str, Sequence[LateBatch]]:
        """The models to compare now, with their late batches."""
        model_ids = list(late)
        if self._start >= len(model_ids):
            self._start = 0
        turn = set(model_ids[self._start : self._start + self._at_once])
        self._start += self._at_once
        return {
            model_id: batches
            for model_id, batches in late.items()
            if model_id in turn or batches != self._shown.get(model_id, ())
        }

    def note_shown(self, late: Mapping[str, Sequence[LateBatch]]) -> None:
        """To be called after the chosen checks were reported: from then on these late batches are no change."""
        self._shown = late

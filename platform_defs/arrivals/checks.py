"""What a check of a model says, what Dagster shows of it, and which checks need a new evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

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
    # whether the UI still shows it; Dagster decides that (assets/shown_checks.py)
    is_current: bool


def needs_evaluation(outcome: CheckOutcome, shown: ShownCheck | None) -> bool:
    """Whether Dagster shows something else than the outcome, or nothing."""
    return shown is None or not shown.is_current or not _says(shown, outcome)


def is_news(outcome: CheckOutcome, shown: ShownCheck | None) -> bool:
    """Whether the outcome is worth a line in the log: it changed, or the first one is that something is late."""
    return not outcome.passed if shown is None else not _says(shown, outcome)


def _says(shown: ShownCheck, outcome: CheckOutcome) -> bool:
    return (shown.passed, shown.description) == (outcome.passed, outcome.description)


class CheckRotation(Generic[T]):
    """Chooses the models whose check is compared with what Dagster shows.

    Models whose late or failed batches changed are chosen at once. The others take turns, because asking Dagster about
    thousands of checks takes longer than a tick may.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._start = 0
        self._shown: Mapping[str, Sequence[T]] = {}

    def choose(self, found: Mapping[str, Sequence[T]]) -> dict[str, Sequence[T]]:
        """The models to compare now, with their batches."""
        model_ids = list(found)
        if self._start >= len(model_ids):
            self._start = 0
        turn = set(model_ids[self._start : self._start + self._at_once])
        self._start += self._at_once
        return {
            model_id: batches
            for model_id, batches in found.items()
            if model_id in turn or batches != self._shown.get(model_id, ())
        }

    def note_shown(self, found: Mapping[str, Sequence[T]]) -> None:
        """To be called after the chosen checks were reported: from then on these batches are no change."""
        self._shown = found

"""What the sink answers for one event: accepted, refused, or not stored for now."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from sqlalchemy.exc import DataError, IntegrityError

from platform_defs.graph.errors import GraphConflict, InvalidGraphValue
from platform_defs.store.errors import PacketTooLarge


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP code, status and message for one event.

    poison: a store refused the event because of its content, so the event belongs to the dead letters.
    """

    code: int
    status: str
    message: str = ""
    poison: bool = False

    @property
    def accepted(self) -> bool:
        return self.code == 201

    @property
    def retriable(self) -> bool:
        return self.code == 503


ACCEPTED = Answer(201, "accepted")
RATE_LIMITED = Answer(503, "rate_limited", "this tenant sends more events than it may; send again later")
QUEUE_FULL = Answer(503, "unavailable", "too many events wait already; send again later")
WARMING_UP = Answer(503, "unavailable", "the graph was away and is being warmed up; send again later")
TOO_SLOW = Answer(503, "unavailable", "a store takes too long for this event; send it again later")
TOO_LATE = Answer(503, "unavailable", "the event could not be stored in time; send it again")


def store_down(stores: Sequence[str] = (), refusing: Set[str] = frozenset()) -> Answer:
    """The answer while these stores are away. Those that refuse everything need an operator, and not a network."""
    troubles = [
        *_trouble(
            [name for name in stores if name in refusing], "refuses what it is asked", "refuse what they are asked"
        ),
        *_trouble([name for name in stores or ["a store"] if name not in refusing], "does not answer", "do not answer"),
    ]
    return Answer(503, "unavailable", f"{' and '.join(troubles)}; send again later")


def _trouble(stores: Sequence[str], of_one: str, of_several: str) -> list[str]:
    return [f"{' and '.join(stores)} {of_several if len(stores) > 1 else of_one}"] if stores else []


def answer_for_error(error: Exception) -> Answer:
    """The answer for an event that a store refuses even when the event is written alone."""
    if isinstance(error, PacketTooLarge):
        return Answer(413, "payload_too_large", "expected an event that fits one statement of the database")
    if isinstance(error, InvalidGraphValue):
        return Answer(400, "bad_request", str(error), poison=True)
    if isinstance(error, GraphConflict):
        return Answer(400, "bad_request", "tenantCode: expected a code that no other tenant has", poison=True)
    if isinstance(error, DataError | IntegrityError):
        return Answer(400, "bad_request", "event: expected values that the database can hold", poison=True)
    return Answer(500, "internal_error", "the event could not be stored; the log has more", poison=True)


def outcome_label(answer: Answer) -> str:
    """The value of the metric label `outcome`."""
    if answer.accepted:
        return "accepted"
    if answer.retriable:
        return answer.status
    return "failed" if answer.code == 500 else "refused"

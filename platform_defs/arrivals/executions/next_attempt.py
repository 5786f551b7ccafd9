"""Whether a batch whose execution did not come to its end is executed once more, and when: pure decisions."""

from dataclasses import dataclass
from datetime import timedelta

from platform_defs.work.rows import EndedBy

# Limits the executions of a batch whose process dies every time.
MAX_ATTEMPTS = 3
# Limits the executions of a batch during which runner, host or platform die every time: it may be what kills them.
MAX_CRASHES = 10
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=10)
# How often an execution is tried again while its source is down, unless the model says otherwise.
RETRIES = 4
# Pauses before the second, third, fourth and fifth try: ten minutes together. Further tries wait as long as the last.
RETRY_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (15, 60, 165, 360))
NO_PAUSE = timedelta(0)


@dataclass(frozen=True)
class Order:
    """How an execution is queued: what its batch went through before, and how long it waits."""

    # 1 at first; grows when the process of an execution dies
    attempt: int = 1
    # deaths of runner, host or platform
    crashes: int = 0
    # 1 at first; grows when the source is down
    try_number: int = 1
    pause: timedelta = NO_PAUSE


FIRST = Order()


def after_death(ended_by: EndedBy, past: Order) -> Order | None:
    """How a batch is queued after an execution that was queued as `past` died; None if it is given up."""
    match ended_by:
        case EndedBy.OPERATOR:
            return None
        case EndedBy.RELEASE:
            return FIRST
        case EndedBy.RESTART:
            return Order(past.attempt, past.crashes, past.try_number)
        case EndedBy.HOST:
            crashes = past.crashes + 1
            pause = min(FIRST_PAUSE * 2**past.crashes, LONGEST_PAUSE)
            return Order(past.attempt, crashes, past.try_number, pause) if crashes < MAX_CRASHES else None
        case EndedBy.DEATH | EndedBy.TIMEOUT:
            attempt = past.attempt + 1
            return Order(attempt, past.crashes, past.try_number) if attempt <= MAX_ATTEMPTS else None


def after_source_down(past: Order, retries: int | None) -> Order | None:
    """How a batch is queued whose source did not answer; None after the last try."""
    if past.try_number > (RETRIES if retries is None else retries):
        return None
    pause = RETRY_PAUSES[min(past.try_number, len(RETRY_PAUSES)) - 1]
    return Order(past.attempt, past.crashes, past.try_number + 1, pause)

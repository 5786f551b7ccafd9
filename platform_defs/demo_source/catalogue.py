"""The records of the demo source: each is a function of the seed and its number, so nothing has to be stored."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

SPAN = timedelta(days=60)
# Records have numbers from this moment on: a restart of the source gives the same record the same time.
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
FIRST_PMID = 40_000_000
# Numbers of records that were added afterwards, so that they never meet those of the grid.
FIRST_LATE = 50_000_000
DOI_PREFIX = "10.5555/Demo."
# Publication and registration of a record come at most this long before its last change.
OLDEST_CREATION_DAYS = 30


@dataclass(frozen=True)
class Work:
    """A publication; `changed` is when the source last changed it."""

    number: int
    changed: datetime
    created: datetime

    @property
    def pmid(self) -> str:
        return str(FIRST_PMID + self.number)

    @property
    def doi(self) -> str:
        return f"{DOI_PREFIX}{self.number:08d}"


@dataclass
class Catalogue:
    """`per_span` records in every 60 days, from 60 days before the start until now; more appear as time passes."""

    per_span: int
    seed: int
    clock: Callable[[], datetime]
    _late: list[Work] = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._first = self._number_at(self.clock() - SPAN) + 1

    @cached_property
    def _step(self) -> timedelta:
        return SPAN / self.per_span

    def changed_between(self, start: datetime, end: datetime) -> list[Work]:
        """Works whose last change is in [start, end), oldest first."""
        until = min(end, self.clock())
        numbers = range(max(self._first, self._number_at(start)), self._number_at(until) + 1)
        found = [*(self._work(number) for number in numbers), *self._late]
        return sorted((work for work in found if start <= work.changed < until), key=lambda work: work.changed)

    def created_between(self, start: datetime, end: datetime) -> list[Work]:
        candidates = self.changed_between(start, end + timedelta(days=OLDEST_CREATION_DAYS + 1))
        return [work for work in candidates if start <= work.created < end]

    def by_pmid(self, pmid: str) -> Work | None:
        return self._by_number(int(pmid) - FIRST_PMID) if pmid.isdecimal() else None

    def by_doi(self, doi: str) -> Work | None:
        prefix, number = doi[: len(DOI_PREFIX)], doi[len(DOI_PREFIX) :]
        known = prefix.lower() == DOI_PREFIX.lower() and number.isdecimal()
        return self._by_number(int(number)) if known else None

    def add_late(self, moments: list[datetime]) -> list[Work]:
        """Records that appear now, although their times lie in windows that may have been harvested already."""
        with self._lock:
            first = FIRST_LATE + len(self._late)
            added = [Work(first + place, moment, moment) for place, moment in enumerate(moments)]
            self._late = [*self._late, *added]
        return added

    def _by_number(self, number: int) -> Work | None:
        if number >= FIRST_LATE:
            return next((work for work in self._late if work.number == number), None)
        if not self._first <= number <= self._number_at(self.clock()):
            return None
        work = self._work(number)
        return work if work.changed < self.clock() else None

    def _number_at(self, moment: datetime) -> int:
        return (moment - EPOCH) // self._step

    def _work(self, number: int) -> Work:
        """Somewhere within the record's own step: the order of numbers is that of times."""
        chance = random.Random(self.seed * 1_000_003 + number)
        changed = EPOCH + number * self._step + chance.random() * self._step
        created = changed - timedelta(days=chance.randrange(OLDEST_CREATION_DAYS))
        return Work(number, changed.replace(microsecond=0), created.replace(microsecond=0))

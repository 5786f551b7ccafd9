"""The shop's own database, a SQLite file: stores, two weeks of orders, returns, and one order with a wrong amount."""

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

DAYS = 14
# so many days before the last one somebody scanned a barcode into the amount of an order
WRONG_DAYS_BEFORE = 3
WRONG_ORDER, RIGHT_AMOUNT = "A-4711", 39.9
WRONG_AMOUNT = 4.006381333931e38

STORES = (
    ("S1", "Hamburg", "north"),
    ("S2", "Bremen", "north"),
    ("S3", "Leipzig", "east"),
    ("S4", "Munich", "south"),
    ("S5", "Stuttgart", "south"),
)
REASONS = ("too small", "damaged", "changed my mind")

_SCHEMA = """
CREATE TABLE demo_stores (store_id TEXT PRIMARY KEY, city TEXT NOT NULL, region TEXT NOT NULL);
CREATE TABLE demo_orders (
    order_id TEXT PRIMARY KEY, day TEXT NOT NULL, store_id TEXT NOT NULL, customer TEXT NOT NULL, amount REAL NOT NULL);
CREATE INDEX idx_demo_orders_day ON demo_orders (day);
CREATE TABLE demo_returns (
    return_id TEXT PRIMARY KEY, day TEXT NOT NULL, order_id TEXT NOT NULL, reason TEXT NOT NULL, refund REAL NOT NULL);
CREATE INDEX idx_demo_returns_day ON demo_returns (day);
CREATE TABLE demo_daily_close (
    day TEXT NOT NULL, store_id TEXT NOT NULL, orders INTEGER NOT NULL, revenue REAL NOT NULL,
    PRIMARY KEY (day, store_id),
    CONSTRAINT revenue_of_a_store_is_below_one_million CHECK (revenue < 1000000));
"""


@dataclass(frozen=True)
class Calendar:
    """The days of the shop, counted back from the day before the demo was born."""

    born: datetime

    @property
    def days(self) -> list[date]:
        last = self.born.date() - timedelta(days=1)
        return [last - timedelta(days=back) for back in reversed(range(DAYS))]

    @property
    def op_times(self) -> list[str]:
        """The batches, the oldest first."""
        return [f"{day:%Y%m%d}" for day in self.days]

    @property
    def last(self) -> str:
        return self.op_times[-1]

    @property
    def wrong(self) -> str:
        """The batch whose order has the wrong amount."""
        return self.op_times[-1 - WRONG_DAYS_BEFORE]


def create_shop(path: Path, calendar: Calendar) -> None:
    """Writes the file, unless it is there: a user may have corrected it. It appears whole or not at all."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as connection, connection:
        connection.executescript(_SCHEMA)
        connection.executemany("INSERT INTO demo_stores VALUES (?, ?, ?)", STORES)
        orders = list(_orders(calendar))
        connection.executemany("INSERT INTO demo_orders VALUES (?, ?, ?, ?, ?)", orders)
        connection.executemany("INSERT INTO demo_returns VALUES (?, ?, ?, ?, ?)", _returns(orders))
        wrong = (WRONG_ORDER, calendar.wrong, "S4", "customer-007", WRONG_AMOUNT)
        connection.execute("INSERT INTO demo_orders VALUES (?, ?, ?, ?, ?)", wrong)
    partial.replace(path)


def _orders(calendar: Calendar) -> Iterator[tuple[str, str, str, str, float]]:
    chance, number = random.Random(7), 1000
    for day in calendar.days:
        # Saturdays are busy, and on Sundays only the website sells
        count = {5: 60, 6: 15}.get(day.weekday(), 35) + chance.randrange(10)
        for _ in range(count):
            number += 1
            store = STORES[chance.randrange(len(STORES))][0]
            amount = round(chance.lognormvariate(3.6, 0.6), 2)
            yield f"A-{number}", f"{day:%Y%m%d}", store, f"customer-{chance.randrange(200):03d}", amount


def _returns(orders: list[tuple[str, str, str, str, float]]) -> Iterator[tuple[str, str, str, str, float]]:
    chance = random.Random(11)
    for order_id, day, _, _, amount in orders:
        if chance.random() < 0.12:
            yield f"R-{order_id.removeprefix('A-')}", day, order_id, chance.choice(REASONS), amount

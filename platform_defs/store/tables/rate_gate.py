"""Tables of the rate gate: one row per key that every process books its requests in, and the leases of requests.

Instants are whole microseconds since 1970 by the database's clock, because bookings do arithmetic with them in SQL.
"""

from sqlalchemy import BigInteger, Column, Double, Integer, Table

from platform_defs.store.metadata import created_at, metadata
from platform_defs.store.types import Str


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


rate_gate = Table(
    "rate_gate",
    metadata,
    Column("gate_key", Str(255), primary_key=True),
    # the earliest instant at which the next request may be sent, if nothing below delays it
    _number("next_slot_us"),
    # wait and interval of the latest booking, packed into one number: MySQL returns only one from an UPDATE
    _number("booked"),
    _number("last_booked_us"),
    # since when the rate rises from its cold start
    _number("warm_from_us"),
    # the rate that the latest 429 or 5xx left; NULL: there was none
    Column("slowed_rate", Double),
    _number("slowed_at_us"),
    # no request may be sent before: Retry-After, or too many failures in a row
    _number("cool_until_us"),
    Column("failures", Integer, nullable=False, server_default="0"),
    # the rate that the source's own headers allow
    Column("limit_rate", Double),
    _number("limit_until_us"),
    # requests that the source's own headers left until its window ends
    _number("window_left"),
    _number("window_until_us"),
    # permits given in the current UTC hour and day, counted from 1970
    _number("hour_no"),
    _number("hour_count"),
    _number("day_no"),
    _number("day_count"),
    created_at(),
)

rate_gate_lease = Table(
    "rate_gate_lease",
    metadata,
    Column("gate_key", Str(255), primary_key=True),
    Column("slot_no", Integer, primary_key=True, autoincrement=False),
    Column("owner", Str(64)),
    _number("leased_until_us"),
)

"""At most four attempts at one host at a time, so that a host that hangs cannot take every thread of the sender."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import httpx

# attempts that may be under way at one host and port, however many callbacks it has
PER_HOST = 4
_PORTS = {"http": 80, "https": 443}


class Host(NamedTuple):
    name: str
    port: int


@lru_cache(maxsize=4096)
def host_of(callback_url: str) -> Host:
    """Where a callback connects to; text that is no URL counts as a host, and its attempt will fail."""
    try:
        url = httpx.URL(callback_url)
    except (httpx.InvalidURL, ValueError):
        return Host(callback_url, 0)
    return Host(url.raw_host.decode("ascii").rstrip("."), url.port or _PORTS.get(url.scheme, 0))


def count_by_host(under_way: Mapping[str, int]) -> Counter[Host]:
    """Attempts under way by host, summed from attempts under way by callback."""
    counts: Counter[Host] = Counter()
    for callback_url, count in under_way.items():
        counts[host_of(callback_url)] += count
    return counts


def choose_deliveries(waiting: Iterable[tuple[int, str]], under_way: Mapping[str, int], limit: int) -> list[int]:
    """Picks from `waiting`, (delivery id, callback) in order, up to `limit` deliveries whose hosts have room."""
    counts = count_by_host(under_way)
    picked: list[int] = []
    for delivery_id, callback_url in waiting:
        host = host_of(callback_url)
        if len(picked) < limit and counts[host] < PER_HOST:
            counts[host] += 1
            picked.append(delivery_id)
    return picked

"""Whose turn it is: one host that hangs must not take every thread, whatever number of callbacks it has."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import httpx

# attempts that are under way at one host and port at a time
PER_HOST = 4
_PORTS = {"http": 80, "https": 443}


class Host(NamedTuple):
    name: str
    port: int


@lru_cache(maxsize=4096)
def host_of(callback_url: str) -> Host:
    """Where a callback connects to; whatever is no URL stands for itself, and its attempt says so."""
    try:
        url = httpx.URL(callback_url)
    except (httpx.InvalidURL, ValueError):
        return Host(callback_url, 0)
    return Host(url.raw_host.decode("ascii").rstrip("."), url.port or _PORTS.get(url.scheme, 0))


def per_host(under_way: Mapping[str, int]) -> Counter[Host]:
    """Attempts that are under way by host, from those by callback."""
    counts: Counter[Host] = Counter()
    for callback_url, count in under_way.items():
        counts[host_of(callback_url)] += count
    return counts


def chosen(waiting: Iterable[tuple[int, str]], under_way: Mapping[str, int], limit: int) -> list[int]:
    """Of (delivery, callback) in order: the deliveries that may be attempted now, at most `limit`."""
    counts = per_host(under_way)
    picked: list[int] = []
    for delivery_id, callback_url in waiting:
        host = host_of(callback_url)
        if len(picked) < limit and counts[host] < PER_HOST:
            counts[host] += 1
            picked.append(delivery_id)
    return picked

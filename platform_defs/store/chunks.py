"""Cuts a long list into parts, because one statement takes only so many values."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in order, in lists of `size` and a last one with the rest. Reads no further than the part it gives."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk

"""How the nightly jobs say what they deleted: in words, and plainly if there was nothing to delete."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dagster import OpExecutionContext


def tell_deleted(context: OpExecutionContext, counts: Any) -> None:
    """`counts` is a dataclass with a number of deleted rows in each field."""
    numbers: Mapping[str, int] = asdict(counts)
    deleted = ", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in numbers.items() if number)
    context.log.info(f"deleted {deleted}" if deleted else "nothing to do: nothing is older than its retention")
    context.add_output_metadata(dict(numbers))

"""Batches: what an opTime looks like, and the table names that a placeholder stands for."""

import re

from platform_defs.arrivals.errors import InvalidArrival

MIN_DIGITS = 4
MAX_DIGITS = 14
# the longest first: yyyymmdd also begins with yyyy
_WORDS = ("yyyymmdd", "yyyymm", "yyyy")
_PLACEHOLDER = re.compile("|".join(_WORDS))
# dashes between year, month, day, hour, minute and second
DASHED = "[0-9]{4}(-[0-9]{2}){1,5}"
_DASHED_PATTERN = re.compile(DASHED)
# a name that repeats its batch more often than this allows is only met by its first spellings
MAX_SPELLINGS = 64


def normalise_op_time(op_time: str) -> str:
    """`2025-12-19` -> `20251219`; refuses what is no batch."""
    digits = op_time.strip().replace("-", "")
    if not (digits.isascii() and digits.isdigit() and MIN_DIGITS <= len(digits) <= MAX_DIGITS):
        raise InvalidArrival("opTime", f"expected {MIN_DIGITS} to {MAX_DIGITS} digits such as 20251219")
    return digits


def batch_of(written: str) -> str:
    """The batch that an ETL job's opTime names: `2025-12-19` is 20251219, any other text a batch of its own."""
    return written.replace("-", "") if _DASHED_PATTERN.fullmatch(written) else written


def spellings(op_time: str) -> tuple[str, ...]:
    """Every opTime that names this batch in an ETL job's row."""
    parts = [op_time[:4], *(op_time[start : start + 2] for start in range(4, len(op_time), 2))]
    dashed = "-".join(parts)
    return (op_time, dashed) if batch_of(dashed) == op_time != dashed else (op_time,)


def render_table_name(table: str, op_time: str) -> str:
    """The table's name for a batch; a placeholder that needs more digits than the batch has stays as it is."""
    return _PLACEHOLDER.sub(
        lambda found: op_time[: len(found[0])] if len(op_time) >= len(found[0]) else found[0], table
    )


def satisfying_names(dependency: str, op_time: str) -> tuple[str, ...]:
    """The names that meet a dependency, the rendered one first: it is about this batch alone."""
    name = render_table_name(dependency, op_time)
    return (dependency,) if name == dependency else (name, dependency)


def dependencies_satisfied_by(table: str, op_time: str) -> list[str]:
    """What a model may have written to wait for this table: the name itself, or one that renders to it.

    Every place that shows the batch's digits may have been a placeholder. Found this way round, a lookup by the
    dependency's index stays one, however many models there are.
    """
    spelled: list[list[str]] = [[""]] + [[] for _ in table]
    for position, letter in enumerate(table):
        for name in spelled[position][:MAX_SPELLINGS]:
            spelled[position + 1].append(name + letter)
            for word in _WORDS:
                if len(op_time) >= len(word) and table.startswith(op_time[: len(word)], position):
                    spelled[position + len(word)].append(name + word)
    return [name for name in dict.fromkeys([table, *spelled[-1]]) if table in satisfying_names(name, op_time)]

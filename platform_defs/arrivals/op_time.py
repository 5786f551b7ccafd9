"""opTimes: how a batch is written, and which table names satisfy a dependency with a date placeholder.

A dependency may contain `yyyymmdd`, `yyyymm` or `yyyy`. For the batch 20251219 the dependency `ORDERS_yyyymm` is
satisfied by a table that arrives as `ORDERS_202512`, and also by one that arrives literally as `ORDERS_yyyymm`.
"""

import re

from platform_defs.arrivals.errors import InvalidArrival

MIN_DIGITS = 4
MAX_DIGITS = 14
# The longest comes first, because yyyymmdd also begins with yyyy.
_PLACEHOLDERS = ("yyyymmdd", "yyyymm", "yyyy")
_PLACEHOLDER = re.compile("|".join(_PLACEHOLDERS))
# An opTime with dashes between year, month, day, hour, minute and second.
DASHED = "[0-9]{4}(-[0-9]{2}){1,5}"
_DASHED_PATTERN = re.compile(DASHED)
# Bounds the search in dependencies_satisfied_by for a table name that repeats the batch's digits many times.
MAX_SPELLINGS = 64


def normalise_op_time(op_time: str) -> str:
    """`2025-12-19` -> `20251219`; raises InvalidArrival unless digits are left."""
    digits = op_time.strip().replace("-", "")
    if not (digits.isascii() and digits.isdigit() and MIN_DIGITS <= len(digits) <= MAX_DIGITS):
        raise InvalidArrival("opTime", f"expected {MIN_DIGITS} to {MAX_DIGITS} digits such as 20251219")
    return digits


def batch_of(written: str) -> str:
    """The batch that an ETL job's opTime names: `2025-12-19` names 20251219, any other text is a batch of its own."""
    return written.replace("-", "") if _DASHED_PATTERN.fullmatch(written) else written


def spellings(op_time: str) -> tuple[str, ...]:
    """Every opTime that names this batch in an ETL job's row: the batch itself, and with dashes if that is possible."""
    parts = [op_time[:4], *(op_time[start : start + 2] for start in range(4, len(op_time), 2))]
    dashed = "-".join(parts)
    return (op_time, dashed) if batch_of(dashed) == op_time != dashed else (op_time,)


def render_table_name(table: str, op_time: str) -> str:
    """The table's name with its placeholders filled in; a placeholder longer than the opTime stays as it is."""
    return _PLACEHOLDER.sub(
        lambda found: op_time[: len(found[0])] if len(op_time) >= len(found[0]) else found[0], table
    )


def satisfying_names(dependency: str, op_time: str) -> tuple[str, ...]:
    """The table names that satisfy a dependency for a batch: first the rendered name, then the literal one."""
    name = render_table_name(dependency, op_time)
    return (dependency,) if name == dependency else (name, dependency)


def dependencies_satisfied_by(table: str, op_time: str) -> list[str]:
    """Every dependency that this table satisfies for the batch: its own name, and each name that renders to it.

    Wherever the table's name shows the batch's digits, the dependency may have a placeholder. The list is short, so
    the dependent models are found through the index on dependencies, however many models there are.
    """
    spelled: list[list[str]] = [[""]] + [[] for _ in table]
    for position, letter in enumerate(table):
        for name in spelled[position][:MAX_SPELLINGS]:
            spelled[position + 1].append(name + letter)
            for word in _PLACEHOLDERS:
                if len(op_time) >= len(word) and table.startswith(op_time[: len(word)], position):
                    spelled[position + len(word)].append(name + word)
    return [name for name in dict.fromkeys([table, *spelled[-1]]) if table in satisfying_names(name, op_time)]

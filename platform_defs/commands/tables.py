"""Lists of the command line: columns under headers for people, JSON lines for programs; options that commands share."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from platform_defs.access.tenants import MAX_ID


class DatabaseId(click.types.IntParamType):
    """A positive id. Ids are 64-bit numbers in the database, whose drivers fail on larger ones."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdecimal() and 0 < int(text) <= MAX_ID):
            self.fail(f"expected a whole number above 0, got {text!r}.", param, ctx)
        return int(text)


def limit_option(default: int, most: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--limit", type=click.IntRange(1, most), default=default, show_default=True, help="At most so many."
    )


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
# a time as programs write it
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
result_option = click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")


def print_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool, nothing: str) -> None:
    """Prints rows with the same fields; `nothing` is what people read if there are none, on stderr."""
    found = list(rows)
    if as_json:
        for row in found:
            click.echo(json.dumps(row, ensure_ascii=False, default=str))
    elif found:
        print_table(list(found[0]), [list(row.values()) for row in found])
    else:
        click.echo(nothing, err=True)


def print_object(fields: Mapping[str, Any]) -> None:
    """Prints the result of a command for programs: one JSON object on one line."""
    click.echo(json.dumps(fields, ensure_ascii=False, default=str))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, goes_on: bool = False) -> None:
    """Columns as wide as their longest value; the last one is not filled up. `goes_on` leaves out the headers.

    Times are shown in UTC, to the second.
    """
    lines = [list(headers), *([_word(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines[1:] if goes_on else lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _word(value: Any) -> str:
    match value:
        case None | "" | [] | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(map(str, value))
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case datetime():
            return f"{value if value.tzinfo is None else value.astimezone(UTC):%F %T}"
        case str() if _INSTANT.fullmatch(value):
            return f"{datetime.fromisoformat(value).astimezone(UTC):%F %T}"
    return " ".join(str(value).split())

"""Lists of the command line: aligned columns under headers for people, one JSON object per line for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
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
    """Columns as wide as their longest value; the last one is not filled up. `goes_on` leaves out the headers."""
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
    return " ".join(str(value).split())

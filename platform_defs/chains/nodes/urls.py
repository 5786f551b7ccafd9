"""URLs with expressions: a value becomes one part of a path or of a query, and cannot become anything else."""

import re
from typing import Any
from urllib.parse import quote

from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import EvaluationFailed, MissingValue, UnsafeValue
from platform_defs.expressions.templates import Template
from platform_defs.expressions.values import scalar_text

# scheme and host are written out: what follows is path or query
_HOST_IS_OVER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+[/?#]")


def render_url(template: Template, context: Context) -> Any:
    """The URL. A text that is one expression is the whole URL, and one before the path may be its beginning."""
    if len(template.pieces) < 2:
        return template.render(context)
    url = ""
    for piece in template.pieces:
        if isinstance(piece, str):
            url += piece
            continue
        value = piece.evaluate(context)
        if value is None:
            raise MissingValue(piece.source)
        try:
            text = scalar_text(value)
        except ValueError as error:
            raise EvaluationFailed(f"{piece.source}: {error}; use join or toText") from None
        if not _HOST_IS_OVER.match(url):
            url += text
        elif text in (".", ".."):
            raise UnsafeValue(f"{piece.source}: expected a value that is no step of a path")
        else:
            url += quote(text, safe="")
    return url

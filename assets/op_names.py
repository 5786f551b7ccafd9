"""Names of ops for names of users: readable where Dagster allows it, and never the same for two different ones."""

import re

# letters and digits in groups with one underscore between them
_PLAIN = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
# what an escaped character looks like between underscores
_NUMBER = re.compile(r"[0-9a-f]+")
_OTHER = re.compile(r"[^A-Za-z0-9]")


def op_name(*parts: str) -> str:
    """The parts with two underscores between them, if that is a name and could not come from other parts.

    Otherwise each character that is no letter or digit becomes its number between underscores, `_` included: `a.b` and
    `a-b` are different ops.
    """
    if all(map(_is_plain, parts)):
        return "__".join(parts)
    return "__".join(_OTHER.sub(lambda found: f"_{ord(found[0]):x}_", part) for part in parts)


def _is_plain(part: str) -> bool:
    """A part such as `a_2d` is not: followed by `2d_b` it would be the name of `a--b`."""
    groups = part.split("_")
    return _PLAIN.fullmatch(part) is not None and (len(groups) == 1 or not any(map(_NUMBER.fullmatch, groups)))

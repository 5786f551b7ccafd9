"""Pages of documentation as programs: their code blocks, what to do with each, and whether what was printed fits.

An HTML comment right above a block says what to do with it:

    <!-- not run: REASON -->    its commands are not executed, and why
    <!-- save as NAME -->       its text is written to the file NAME
    <!-- prints -->             it is what the block of commands before it prints

A block of `sh` without a comment is executed. In what is printed `…` stands for anything within a line, and a line that
is only `…` for any lines. JSON is compared as JSON; there `"…"` is any value, and the key `…` allows for further keys.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(
    r"(?:^<!--(?P<comment>.*?)-->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_COMMENT = re.compile(r"(?P<verb>not run|save as|prints)(?::? +(?P<what>\S.*))?")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    verb: str
    what: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_executed(self) -> bool:
        return self.language == "sh" and self.verb == ""


def read_blocks(path: Path, name: str) -> list[Block]:
    content, found = path.read_text(encoding="utf-8"), []
    for match in _BLOCK.finditer(content):
        line = content.count("\n", 0, match.start("language")) + 1
        comment = (match["comment"] or "").strip()
        told = _COMMENT.fullmatch(comment)
        assert told or not comment, f"{name}:{line}: what is {comment!r}?"
        verb, what = (told["verb"], told["what"] or "") if told else ("", "")
        assert verb == "prints" or bool(what) == bool(verb), f"{name}:{line}: {verb!r} needs a reason or a name"
        found.append(Block(name, line, match["language"], match["text"], verb, what))
    return found


def difference(block: Block, printed: str) -> str | None:
    """None if what was printed fits the block, else a text with both."""
    if block.language == "json":
        fits = any(_fits_json(json.loads(block.text), json.loads(line)) for line in printed.splitlines() if line)
    else:
        fits = _fits_lines(block.text.rstrip("\n").split("\n"), [line.rstrip() for line in printed.splitlines()])
    return None if fits else f"{block.place} says\n{block.text}\nbut this was printed:\n{printed}"


def _fits_lines(expected: list[str], printed: list[str]) -> bool:
    if not expected:
        return not printed
    first, rest = expected[0].rstrip(), expected[1:]
    if first == "…":
        return any(_fits_lines(rest, printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and _fits_text(first, printed[0]) and _fits_lines(rest, printed[1:])


def _fits_text(expected: str, printed: str) -> bool:
    """Runs of spaces count as one: the width of a column depends on what is in it."""
    words = [re.escape(part) for part in re.sub(r" +", " ", expected).split("…")]
    return re.fullmatch(".*".join(words), re.sub(r" +", " ", printed)) is not None


def _fits_json(expected: Any, printed: Any) -> bool:
    if expected == "…":
        return True
    if isinstance(expected, dict) and isinstance(printed, dict):
        open_ended = "…" in expected
        keys = expected.keys() - {"…"}
        return (
            (open_ended or keys == printed.keys())
            and keys <= printed.keys()
            and all(_fits_json(expected[key], printed[key]) for key in keys)
        )
    if isinstance(expected, list) and isinstance(printed, list):
        return len(expected) == len(printed) and all(map(_fits_json, expected, printed))
    if isinstance(expected, str) and isinstance(printed, str):
        return _fits_text(expected, printed)
    return bool(expected == printed)

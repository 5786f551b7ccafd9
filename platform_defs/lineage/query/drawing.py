"""A walk as text: a tree for the terminal, JSON for programs, Mermaid and DOT for drawings.

Names come from events of strangers. None of them may move the cursor of a terminal, or end the text of a drawing.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from platform_defs.lineage.query.names import Asset
from platform_defs.lineage.query.walk import Step, Walk

FORMS = ("tree", "json", "mermaid", "dot")
_MORE = "… (more with a greater --depth)"


def draw(walk: Walk, form: str) -> str:
    match form:
        case "json":
            return json.dumps(_document(walk), ensure_ascii=False)
        case "mermaid":
            return "\n".join(["flowchart LR", *_drawn(walk, _mermaid_node, _mermaid_edge)])
        case "dot":
            lines = _drawn(walk, _dot_node, _dot_edge)
            return "\n".join(["digraph lineage {", "  rankdir=LR; node [shape=box];", *lines, "}"])
    return "\n".join(_tree(walk))


def printable(text: str) -> str:
    """The text on one line, with everything that is not printable written as an escape."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text
    )


def _tree(walk: Walk) -> Iterator[str]:
    steps: dict[str, list[Step]] = defaultdict(list)
    for step in walk.steps:
        steps[step.near].append(step)
    yield f"{printable(walk.root.name)}  [{printable(walk.root.namespace)}]"
    if not walk.steps and not walk.more:
        yield f"└── nothing is known {'upstream' if walk.upstream else 'downstream'}"
    yield from _branches(walk, steps, walk.root.id, "", frozenset([walk.root.id]), set())


def _branches(
    walk: Walk, steps: dict[str, list[Step]], near: str, margin: str, path: frozenset[str], shown: set[str]
) -> Iterator[str]:
    """The lines below `near`. What was shown elsewhere is named, but what is beyond it is not repeated."""
    shown.add(near)
    branches = [(far, _branch_text(walk, far, vias)) for far, vias in _by_far(steps[near])]
    if near in walk.more:
        branches.append((None, _MORE))
    for at, (far, text) in enumerate(branches):
        mark, deeper = ("└── ", "    ") if at == len(branches) - 1 else ("├── ", "│   ")
        if far is None:
            yield f"{margin}{mark}{text}"
        elif far in path:
            yield f"{margin}{mark}{text}  (cycle: it is above)"
        elif far in shown and (steps[far] or far in walk.more):
            yield f"{margin}{mark}{text}  (shown above)"
        else:
            yield f"{margin}{mark}{text}"
            yield from _branches(walk, steps, far, margin + deeper, path | {far}, shown)


def _by_far(steps: Sequence[Step]) -> list[tuple[str | None, list[str]]]:
    """One entry for each end: several jobs may lead to the same table."""
    groups: dict[str | None, list[str]] = {}
    for step in steps:
        groups.setdefault(step.far, []).append(step.via)
    return list(groups.items())


def _branch_text(walk: Walk, far: str | None, vias: Sequence[str]) -> str:
    by = ", ".join(printable(via) for via in vias if via)
    if far is None:
        return f"({by or 'a job'} {'reads' if walk.upstream else 'writes'} no table)"
    asset = walk.assets[far]
    # the namespace is said where it is another one than the root's
    place = "" if asset.namespace == walk.root.namespace else f"  [{printable(asset.namespace)}]"
    return f"{printable(asset.name)}{place}{f'  by {by}' if by else ''}"


def _document(walk: Walk) -> dict[str, Any]:
    return {
        "direction": "upstream" if walk.upstream else "downstream",
        "root": _json_asset(walk.root),
        "assets": [_json_asset(asset) | {"more": id in walk.more} for id, asset in walk.assets.items()],
        "edges": [_json_edge(walk, step) for step in walk.steps],
        "truncated": walk.truncated,
    }


def _json_asset(asset: Asset) -> dict[str, Any]:
    return {"kind": asset.kind, "name": asset.name, "namespace": asset.namespace}


def _json_edge(walk: Walk, step: Step) -> dict[str, Any]:
    start, end = _flow(walk, step)
    return {
        "from": None if start is None else _json_asset(walk.assets[start]),
        "to": None if end is None else _json_asset(walk.assets[end]),
        "by": step.via or None,
    }


def _flow(walk: Walk, step: Step) -> tuple[str | None, str | None]:
    """The ends of a step in the direction in which data flows."""
    return (step.far, step.near) if walk.upstream else (step.near, step.far)


def _drawn(walk: Walk, node: Callable[[str, str, bool], str], edge: Callable[[str, str, str], str]) -> Iterator[str]:
    """Nodes are called n0, n1, … so that a name is only ever a label. A job beyond which is nothing is a node too.

    Labels have one line break, between name and namespace.
    """
    ids = {id: f"n{at}" for at, id in enumerate(walk.assets)}
    for id, asset in walk.assets.items():
        yield node(ids[id], f"{printable(asset.name)}\n{printable(asset.namespace)}", id == walk.root.id)
    for at, step in enumerate(walk.steps):
        start, end = _flow(walk, step)
        if start is None or end is None:
            yield node(f"j{at}", printable(step.via) or "a job", False)
        names = [f"j{at}" if id is None else ids[id] for id in (start, end)]
        yield edge(names[0], names[1], "" if None in (start, end) else printable(step.via))


def _mermaid_node(id: str, label: str, is_root: bool) -> str:
    return f'  {id}["{_mermaid_text(label)}"]' + (f"\n  style {id} stroke-width:3px" if is_root else "")


def _mermaid_edge(start: str, end: str, label: str) -> str:
    return f'  {start} -->|"{_mermaid_text(label)}"| {end}' if label else f"  {start} --> {end}"


def _mermaid_text(text: str) -> str:
    """Everything but letters, digits and a few harmless marks is written as `#code;`, which Mermaid shows as is."""
    return "<br>".join(
        "".join(letter if letter.isalnum() or letter in " _./-:" else f"#{ord(letter)};" for letter in line)
        for line in text.split("\n")
    )


def _dot_node(id: str, label: str, is_root: bool) -> str:
    return f"  {id} [label={_dot_text(label)}{' penwidth=3' if is_root else ''}];"


def _dot_edge(start: str, end: str, label: str) -> str:
    return f"  {start} -> {end}{f' [label={_dot_text(label)}]' if label else ''};"


def _dot_text(text: str) -> str:
    """Graphviz reads entities such as `&quot;` also within quotes."""
    return '"' + text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

"""Expressions against Python written by hand for the same source: one query, one page of Crossref, one page of times.

    .venv/bin/python -m bench.expressions

Each ratio is of two measurements of the same run, taken in turns; the best of several rounds counts.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platform_defs.expressions.context import Context
from platform_defs.expressions.fields import compile_query, encode_pairs
from platform_defs.expressions.instants import read_instant
from platform_defs.expressions.json_paths import compile_path
from platform_defs.expressions.templates import compile_template
from tests.needs import require

ROUNDS = 15
ITEMS = 100
TEMPLATES = {
    "filter": "from-index-date:${formatDateTime(window.from, \"yyyy-MM-dd'T'HH:mm:ss\")},"
    "until-index-date:${formatDateTime(window.to, \"yyyy-MM-dd'T'HH:mm:ss\")}",
    "rows": "${page.size}",
    "cursor": "${coalesce(page.token, '*')}",
    "mailto": "${params.mailto}",
    "offset": "${page.offset}",
}
PATHS = (
    "$.message.items[*].DOI",
    "$.message.items[*].indexed.date-time",
    "$.message.items[*].title[0]",
    "$.message.items[*].type",
    "$.message.items[*].author[*].family",
)


def query_by_hand(names: dict[str, Any]) -> list[tuple[str, str]]:
    begin, end = names["window"]["from"], names["window"]["to"]
    pattern = "%Y-%m-%dT%H:%M:%S"
    pairs = [
        ("filter", f"from-index-date:{begin.strftime(pattern)},until-index-date:{end.strftime(pattern)}"),
        ("rows", str(names["page"]["size"])),
        ("cursor", names["page"].get("token") or "*"),
    ]
    if mailto := names["params"].get("mailto"):
        pairs.append(("mailto", mailto))
    if (offset := names["page"].get("offset")) is not None:
        pairs.append(("offset", str(offset)))
    return pairs


def values_by_hand(page: Any) -> list[list[Any]]:
    items = page["message"]["items"]
    return [
        [item["DOI"] for item in items if "DOI" in item],
        [item["indexed"]["date-time"] for item in items if "indexed" in item],
        [item["title"][0] for item in items if item.get("title")],
        [item["type"] for item in items if "type" in item],
        [author["family"] for item in items for author in item.get("author", ()) if "family" in author],
    ]


def crossref_page() -> Any:
    """Real works of the recorded responses, as many as a page has."""
    items: list[Any] = []
    for file in sorted(Path(require("data"), "responses").glob("*/*works*.json")):
        try:
            found = json.loads(file.read_bytes())["message"]["items"]
        except (ValueError, KeyError, TypeError):
            continue
        items += [item for item in found if isinstance(item, dict) and "DOI" in item and "indexed" in item]
    assert len(items) >= ITEMS, "expected more recorded works of Crossref"
    return {"message": {"items": items[:ITEMS]}}


def measure(times: int, *candidates: Callable[[], Any]) -> list[float]:
    """Seconds a call of each candidate: the best round, because others use this machine too."""
    best = [float("inf")] * len(candidates)
    for _ in range(ROUNDS):
        for number, candidate in enumerate(candidates):
            began = time.perf_counter()
            for _ in range(times):
                candidate()
            best[number] = min(best[number], (time.perf_counter() - began) / times)
    return best


def report(what: str, unit: str, factor: float, ours: float, by_hand: float) -> None:
    print(f"{what:58} {ours * factor:8.2f} {unit}   by hand {by_hand * factor:8.2f} {unit}   {ours / by_hand:5.1f}x")


def main() -> None:
    names = {
        "window": {"from": datetime(2025, 9, 20, tzinfo=UTC), "to": datetime(2025, 9, 21, tzinfo=UTC)},
        "page": {"size": 100, "token": None},
        "params": {"mailto": "a@example.org"},
    }
    context = Context(names, now=datetime.now(UTC))
    templates = [compile_template(text) for text in TEMPLATES.values()]
    query = compile_query(TEMPLATES)
    assert query.render(context) == query_by_hand(names)
    times = 2000
    plain, checked, by_hand, encoded, encoded_by_hand = measure(
        times,
        lambda: [template.render(context) for template in templates],
        lambda: query.render(context),
        lambda: query_by_hand(names),
        lambda: encode_pairs(query.render(context)),
        lambda: encode_pairs(query_by_hand(names)),
    )
    report("query of five templates, rendered", "us", 1e6, plain, by_hand)
    report("the same, each value safe for its place", "us", 1e6, checked, by_hand)
    report("the same, encoded", "us", 1e6, encoded, encoded_by_hand)

    page = crossref_page()
    paths = [compile_path(text) for text in PATHS]
    assert [path.values(page) for path in paths] == values_by_hand(page)
    ours, by_hand = measure(50, lambda: [path.values(page) for path in paths], lambda: values_by_hand(page))
    report(f"five paths over a page of {ITEMS} works", "ms", 1e3, ours, by_hand)

    items = page["message"]["items"]
    identity, updated = compile_path("$.DOI"), compile_path("$.indexed.date-time")
    ours, by_hand = measure(
        50,
        lambda: [(identity.first(item), read_instant(updated.first(item))) for item in items],
        lambda: [(item["DOI"], datetime.fromisoformat(item["indexed"]["date-time"])) for item in items],
    )
    report(f"id and time of update of each of {ITEMS} works", "ms", 1e3, ours, by_hand)

    text = TEMPLATES["filter"]
    (compiling,) = measure(100, lambda: compile_template(text))
    print(f"{'compiling one template with two calls':58} {compiling * 1e6:8.2f} us")


if __name__ == "__main__":
    main()

"""327 real events of public projects: those with all required fields are parsed, the others are refused by name."""

import csv
import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.graph.checks import check_labels, check_props
from platform_defs.lineage.errors import InvalidEvent
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import ColumnSet, Exists, Linked, Statement
from tests.needs import require

pytestmark = pytest.mark.needs("data")
REFUSED = ("eventTime", "run.runId")


@cache
def corpus() -> list[tuple[dict[str, str], Any]]:
    folder = Path(require("data")) / "openlineage"
    with (folder / "INDEX.tsv").open(newline="") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    return [(row, json.loads((folder / row["file"]).read_text())) for row in rows]


def real_events(count: int) -> list[dict[str, Any]]:
    """Events of real clients, as of runs that nobody has seen before."""
    chance, start = random.Random(7), datetime(2026, 3, 1, tzinfo=UTC)
    known = [event for row, event in corpus() if row["lenient_ok"] == "1" and event.get("run")]
    return [
        event
        | {
            "eventTime": (start + timedelta(seconds=number)).isoformat(),
            "run": {**event["run"], "runId": str(uuid.UUID(int=chance.getrandbits(128)))},
        }
        for number, event in enumerate(chance.choices(known, k=count))
    ]


def lacks(raw: dict[str, Any]) -> str | None:
    """The required field that an event of the corpus lacks."""
    if not raw.get("eventTime"):
        return "eventTime"
    return "run.runId" if "run" in raw and not raw["run"].get("runId") else None


def test_every_event_that_has_what_is_required_is_read_and_the_others_name_what_they_lack() -> None:
    refused = {}
    for row, raw in corpus():
        try:
            parse_event(raw)
        except InvalidEvent as error:
            refused[row["file"]] = error.field
    assert refused == {row["file"]: lacks(raw) for row, raw in corpus() if lacks(raw)}
    assert set(refused.values()) == set(REFUSED)
    assert not [row["file"] for row, _ in corpus() if row["lenient_ok"] == "1" and row["file"] in refused]


@pytest.mark.parametrize("source_type", SourceType)
def test_every_event_says_facts_that_the_graph_can_hold(source_type: SourceType) -> None:
    for _, raw in corpus():
        if lacks(raw):
            continue
        extraction = facts_of(parse_event(raw), source_type)
        for fact in extraction.facts:
            parts: list[Any] = [fact]
            if isinstance(fact, ColumnSet):
                parts = list(fact.columns)
            elif isinstance(fact, Statement):
                parts = [*fact.written, *fact.read, *fact.links]
            for node in parts:
                if isinstance(node, Exists):
                    check_labels({node.label}, kind_required=True)
                    # `properties.KEY` is an entry of the map `properties`, not a property of the node
                    check_props({name: value for name, value in node.props.items() if "." not in name})
                elif isinstance(node, Linked):
                    check_props(node.props)


def test_facts_depend_on_the_event_alone() -> None:
    for _, raw in corpus():
        if not lacks(raw):
            again = json.loads(json.dumps(raw))
            assert facts_of(parse_event(raw), SourceType.COMPUTE) == facts_of(parse_event(again), SourceType.COMPUTE)


def test_no_table_of_a_compute_event_is_lost() -> None:
    for row, raw in corpus():
        if lacks(raw):
            continue
        event = parse_event(raw)
        facts = facts_of(event, SourceType.COMPUTE).facts
        tables = {fact.ref for fact in facts if isinstance(fact, Exists) and fact.ref.kind == "table"}
        said = [link for fact in facts if isinstance(fact, Statement) for link in fact.links]
        tied = {end for link in said for end in (link.source, link.target)}
        named = {(found.namespace, found.name) for found in event.datasets}
        assert bool(tables) == bool(named), row["file"]
        if event.inputs or event.outputs:
            assert tables <= tied | {ref for ref in tables if any(end.parent == ref for end in tied)}, row["file"]

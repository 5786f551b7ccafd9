"""Events that a real dbt-ol sent (dbt/record.py), in orders in which they may arrive: lineage stays the same.

A dbt-ol that runs and sends events to a running sink is in tests/e2e/test_dbt.py.
"""

import json
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS
from tests.lineage.dbt_project import DERIVED, JOINED, lineage
from tests.lineage.test_merge_stores import new_tenant, open_graphs

__all__ = ["open_graphs"]
FOLDER = Path(__file__).parent / "dbt"
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
RUN = COMMANDS[0]


def events_of(command: str) -> list[EventFacts]:
    events = [parse_event(json.loads(line)) for line in FOLDER.joinpath(f"{command}.jsonl").read_text().splitlines()]
    return [
        EventFacts(version_of(event.event_time, event.payload_hash), facts_of(event, SourceType.COMPUTE).facts)
        for event in events
    ]


@pytest.fixture(params=GRAPHS)
def new_store(
    request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph]
) -> Iterator[Callable[[], tuple[Any, GraphStore]]]:
    made: list[GraphStore] = []

    def make() -> tuple[Any, GraphStore]:
        tenant = new_tenant()
        made.append(open_graphs(str(request.param)).for_tenant(tenant.id))
        return tenant, made[-1]

    yield make
    for store in made:
        store.clear()


def test_lineage_is_the_same_after_every_command_of_dbt(new_store: Callable[[], tuple[Any, GraphStore]]) -> None:
    tenant, store = new_store()
    for command in COMMANDS:
        for event in events_of(command):
            assert not apply_events(store, tenant, [event]).needs_rebuild
        assert lineage(store) == (DERIVED, JOINED), command


def test_lineage_is_the_same_in_every_order_in_which_commands_arrive(
    new_store: Callable[[], tuple[Any, GraphStore]],
) -> None:
    others = COMMANDS[1:]
    for order in (COMMANDS[::-1], *([*some, RUN] for some in list(permutations(others))[:3])):
        tenant, store = new_store()
        for command in order:
            assert not apply_events(store, tenant, events_of(command)).needs_rebuild
        assert lineage(store) == (DERIVED, JOINED), order

"""An event that claims a time to come is stored before it is applied: nothing of it may stay if it is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from platform_defs.graph.errors import InvalidGraphValue
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.upkeep import recovery
from platform_defs.lineage.upkeep.recovery import recover
from tests.api.lineage_client import Client
from tests.lineage_events import run_event


def test_a_refused_event_from_the_future_leaves_no_row_of_which_the_recovery_makes_a_second_letter(
    client: Client, failing: Callable[[Callable[..., Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> Any:
        raise InvalidGraphValue("props.name", "expected something else")

    failing(refuse)
    monkeypatch.setattr(recovery, "apply_events", refuse)
    answer = client.post(run_event(time="2999-01-01T00:00:00Z"))
    assert (answer.status_code, answer.json()["status"]) == (400, "bad_request")
    assert client.rows() == []
    recover(client.engine, client.running.app.state.graph, patience=timedelta(seconds=-60))
    assert len(dead_letters.list_letters(client.engine)) == 1

"""Which loaded definitions a run may start with: the code that is on disk, and rows as new as at the launch."""

from collections.abc import Mapping

import pytest
from sqlalchemy import Engine

from platform_defs.runner.definitions_loader import (
    LONGEST_LOAD_S,
    RETRY_FIRST_LOAD_S,
    DefinitionsLoader,
    may_execute,
)
from platform_defs.runner.fingerprint import Fingerprint
from platform_defs.runner.fork_server import ForkServer
from platform_defs.runner.launched_runs import launch_payload, needed_versions
from platform_defs.work import rows
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import DAGSTER_RUN

NEWEST = Fingerprint("code", {"models": 9, "chains": 4})


def loaded(code: str = "code", **versions: int) -> Fingerprint:
    return Fingerprint(code, versions)


@pytest.mark.parametrize(
    ("needed", "known", "expected"),
    [
        ({"models": 5}, loaded(models=5, chains=1), True),
        ({"models": 5}, loaded(models=7, chains=1), True),
        ({"models": 5}, loaded(models=4, chains=4), False),
        ({"models": 5, "chains": 2}, loaded(models=9, chains=1), False),
        ({"models": 5, "chains": 2}, loaded(models=9), False),
        ({"models": 5}, loaded("older code", models=9, chains=4), False),
        ({}, loaded(), True),
        ({}, loaded("older code"), False),
    ],
)
def test_a_run_needs_the_code_on_disk_and_rows_as_new_as_at_its_launch(
    needed: Mapping[str, int], known: Fingerprint, expected: bool
) -> None:
    assert may_execute(needed, present=NEWEST, loaded=known, failed=None) is expected


@pytest.mark.parametrize(
    ("failed", "expected"),
    [(loaded(models=5), True), (loaded(models=4), False), (loaded("older code", models=9), False), (None, False)],
)
def test_a_run_whose_definitions_do_not_load_starts_with_those_before_them(
    failed: Fingerprint | None, expected: bool
) -> None:
    before = loaded("older code", models=1)
    assert may_execute({"models": 5}, present=NEWEST, loaded=before, failed=failed) is expected


def test_nothing_starts_before_any_definitions_are_loaded() -> None:
    assert not may_execute({}, present=NEWEST, loaded=None, failed=NEWEST)


def test_a_run_never_waits_for_more_than_the_newest_definitions() -> None:
    """Its counters may be from before a backup was restored."""
    assert may_execute({"models": 10, "gone": 1}, present=NEWEST, loaded=NEWEST, failed=None)


def test_only_runs_that_dagster_launched_need_versions_and_rows_from_before_they_were_recorded_need_none(
    engine: Engine,
) -> None:
    payload = launch_payload({"models": 3})
    assert needed_versions(rows.enqueue(engine, DAGSTER_RUN, payload)) == {"models": 3}
    assert needed_versions(rows.enqueue(engine, DAGSTER_RUN, {})) == {}
    assert needed_versions(rows.enqueue(engine, "model_run", payload)) == {}


def test_a_load_that_does_not_end_is_given_up_and_said_and_tried_again() -> None:
    now = 0.0
    listened: list[ForkServer] = []
    loader = DefinitionsLoader(listened.append, listened.remove, clock=lambda: now)
    loader.load(NEWEST, is_awaited=False)
    # nobody hears what the fork server says, as if it hung
    (hanging,) = listened
    process = ProcessId.of(hanging.pid)
    assert process is not None
    now = LONGEST_LOAD_S - 1
    loader.load(NEWEST, is_awaited=False)
    assert (listened, loader.load_error) == ([hanging], None)
    now = LONGEST_LOAD_S
    loader.load(NEWEST, is_awaited=False)
    assert loader.load_error == "loading did not end within 600 s; does an import wait?"
    assert (listened, process.is_alive()) == ([], False)
    now += RETRY_FIRST_LOAD_S
    loader.load(NEWEST, is_awaited=False)
    assert len(listened) == 1
    loader.close_all()

"""Rows that wait for definitions that are still loading: who waits, who does not, and that nobody is claimed in vain.

A real runner, turned by hand, with a real fork server; another one that loads is stopped and continued by signals.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy import Engine

from platform_defs import dagster_instance
from platform_defs.runner import definitions_loader
from platform_defs.runner.fork_server import ForkServer
from platform_defs.runner.launched_runs import launch_payload
from platform_defs.runner.runner import Runner
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine, read, transact
from platform_defs.upgrade import upgrade_stores
from platform_defs.work import rows
from platform_defs.work.definition_versions import bump, read_versions
from platform_defs.work.rows import DAGSTER_RUN, Status, Work
from tests.waiting import until

SLOTS = 2


class TurnedRunner:
    """A runner whose loop the test turns."""

    def __init__(self, settings: Settings, engine: Engine, instance: DagsterInstance) -> None:
        self.engine = engine
        self._runner = Runner(settings, engine, instance)
        self._held: ForkServer | None = None

    def turn(self) -> None:
        self._runner._tick()
        for key, _ in self._runner._selector.select(0.05):
            key.data()

    def turn_until(self, condition: str, look: Callable[[], object]) -> None:
        def turn_and_look() -> object:
            self.turn()
            return look()

        until(condition, turn_and_look)

    def until_loaded(self) -> None:
        def is_newest() -> bool:
            current = self._runner._loader.current
            return current is not None and current.fingerprint.versions == read(self.engine, read_versions)

        self.turn_until("the newest definitions to be loaded", is_newest)

    def is_loading(self) -> bool:
        return self._runner._loader._loading is not None

    def publish(self) -> None:
        transact(self.engine, lambda connection: bump(connection, "models"))

    def hold_the_load(self) -> None:
        """Waits for a fork server that begins to load definitions, and lets it go no further."""
        self.turn_until("a load to begin", lambda: self._runner._loader._loading)
        loading = self._runner._loader._loading
        assert loading is not None
        os.kill(loading.pid, signal.SIGSTOP)
        self._held = loading

    def let_load(self) -> None:
        assert self._held is not None
        held, self._held = self._held, None
        os.kill(held.pid, signal.SIGCONT)
        self.turn_until("the load to end", lambda: self._runner._loader._loading is not held)

    def launch(self) -> Work:
        """As the launcher does; that no such run exists makes its process fail, which does not matter here."""
        return rows.enqueue(self.engine, DAGSTER_RUN, launch_payload(read(self.engine, read_versions)))

    def row(self, row: Work) -> Work:
        return rows.get(self.engine, row.id)

    def has_started(self, row: Work) -> bool:
        return self.row(row).process is not None

    def close(self) -> None:
        if self._held is not None:
            self.let_load()
        self._runner._processes.stop()
        self.turn_until("all runs to end", self._runner._has_stopped)
        self._runner._processes.leave()
        self._runner._loader.close_all()
        self._runner._selector.close()


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TurnedRunner]:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_RUNNER_SLOTS", str(SLOTS))
    monkeypatch.setattr(definitions_loader, "LOAD_EVERY_S", 0.0)
    settings = Settings.load()
    upgrade_stores(settings)
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    engine = open_engine(settings.database_url)
    with DagsterInstance.get() as instance:
        runner = TurnedRunner(settings, engine, instance)
        try:
            runner.until_loaded()
            yield runner
        finally:
            runner.close()
    engine.dispose()


def test_runs_that_need_newer_definitions_are_claimed_once_and_block_no_slot_for_other_rows(
    runner: TurnedRunner,
) -> None:
    runner.publish()
    runner.hold_the_load()
    launched = [runner.launch() for _ in range(2 * SLOTS)]
    other = rows.enqueue(runner.engine, "selfcheck", {})
    runner.turn_until("the other row to finish", lambda: runner.row(other).status.is_final)
    assert runner.row(other).status is Status.SUCCEEDED
    assert {runner.row(row).status for row in launched} == {Status.QUEUED}
    assert [runner.row(row).attempts for row in launched] == [1] * SLOTS + [0] * SLOTS
    runner.let_load()
    runner.turn_until("all runs to end", lambda: all(runner.row(row).status.is_final for row in launched))
    assert all(runner.has_started(row) for row in launched)


def test_a_run_starts_with_definitions_as_new_as_at_its_launch_although_rows_change_all_the_time(
    runner: TurnedRunner,
) -> None:
    launched = runner.launch()
    runner.publish()
    runner.hold_the_load()
    runner.turn_until("the run to start", lambda: runner.has_started(launched))
    for _ in range(2):
        launched = runner.launch()
        runner.publish()
        runner.let_load()
        runner.hold_the_load()  # of rows that changed during the load before
        runner.turn_until("the run to start", lambda row=launched: runner.has_started(row))


def test_changes_that_no_run_waits_for_are_loaded_at_a_pace_and_a_run_that_does_is_not_kept_waiting(
    runner: TurnedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions_loader, "LOAD_EVERY_S", 3600.0)
    for _ in range(2):
        runner.publish()
        runner.until_loaded()
    runner.publish()
    other = rows.enqueue(runner.engine, "selfcheck", {})
    runner.turn_until("the other row to finish", lambda: runner.row(other).status.is_final)
    assert not runner.is_loading()
    launched = runner.launch()
    runner.turn_until("the run to start", lambda: runner.has_started(launched))
    runner.turn_until("the run to end", lambda: runner.row(launched).status.is_final)

"""Leases that ran out: what they say of a run depends on whether its process can be seen."""

import os
import selectors
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.launcher.base import WorkerStatus
from dagster._core.test_utils import create_run_for_test
from sqlalchemy import Engine, update

from platform_defs import dagster_instance
from platform_defs.runner.launcher import WarmRunLauncher, _engine_of
from platform_defs.runner.metrics import RunnerMetrics
from platform_defs.runner.recovery import Contact, close_expired_rows
from platform_defs.runner.run_processes import RunProcesses
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.work import work as table
from platform_defs.upgrade import upgrade_stores
from platform_defs.work import leases, rows, runners
from platform_defs.work.processes import ProcessId, hostname
from platform_defs.work.rows import Status, Work
from tests.lost_answers import losing_answer

ME = ProcessId.current()
PARENT = ProcessId.of(os.getppid()) or ME
GONE = ProcessId(ME.pid, ME.started - 1)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    settings = Settings.load()
    upgrade_stores(settings)
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    engine = open_engine(settings.database_url)
    _engine_of.cache_clear()  # the launcher of a process has one home
    yield engine
    for used in (engine, _engine_of(ME.pid)):
        used.dispose()
    _engine_of.cache_clear()


@pytest.fixture
def instance(engine: Engine) -> Iterator[DagsterInstance]:
    with DagsterInstance.get() as instance:
        yield instance


@pytest.fixture
def close_lost(settings: Settings, engine: Engine, instance: DagsterInstance) -> Iterator[Callable[[], None]]:
    """What another runner of this machine does with leases that ran out."""
    with selectors.DefaultSelector() as selector:
        other = RunProcesses(settings, engine, instance, selector, RunnerMetrics(), owner=ME.full_name)
        yield lambda: close_expired_rows(other, of_other_machines=True)
        for row in leases.running_rows(engine):
            if row.id in other:
                other.forget(row.id)


@pytest.fixture
def child() -> Iterator[ProcessId]:
    with subprocess.Popen(["sleep", "600"]) as process:
        found = ProcessId.of(process.pid)
        assert found is not None
        yield found
        process.kill()


def expired(
    engine: Engine, instance: DagsterInstance, process: ProcessId | None, *, host: str, runner: ProcessId = PARENT
) -> Work:
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED)
    owner = f"{host}:{runner.pid}:{runner.started}"
    row = rows.enqueue(engine, rows.DAGSTER_RUN, {}, run_id=run.run_id)
    leases.claim(engine, owner, 1)
    if process is not None:
        leases.mark_started(engine, owner, row.id, process)
    minute_ago = datetime.now(UTC) - timedelta(minutes=1)
    with engine.begin() as connection:
        connection.execute(update(table).where(table.c.id == row.id).values(leased_until=minute_ago))
    return rows.get(engine, row.id)


def health(instance: DagsterInstance, row: Work) -> WorkerStatus:
    launcher, run = instance.run_launcher, instance.get_run_by_id(row.run_id)
    assert isinstance(launcher, WarmRunLauncher)
    assert run is not None
    return launcher.check_run_worker_health(run).status


def test_a_living_process_of_this_machine_is_no_failure_while_its_runner_cannot_renew(
    engine: Engine, instance: DagsterInstance, close_lost: Callable[[], None], child: ProcessId
) -> None:
    row = expired(engine, instance, child, host=hostname())
    assert health(instance, row) is WorkerStatus.RUNNING
    close_lost()
    assert rows.get(engine, row.id) == row
    assert [run.status for run in instance.get_runs()] == [DagsterRunStatus.STARTED]


def test_a_living_process_whose_runner_is_gone_is_adopted_by_another_of_this_machine(
    engine: Engine, instance: DagsterInstance, close_lost: Callable[[], None], child: ProcessId
) -> None:
    row = expired(engine, instance, child, host=hostname(), runner=GONE)
    assert health(instance, row) is WorkerStatus.RUNNING
    close_lost()
    adopted = rows.get(engine, row.id)
    assert (adopted.status, adopted.lease_owner) == (Status.RUNNING, ME.full_name)
    assert leases.rows_with_expired_lease(engine) == []


@pytest.mark.parametrize(("host", "process"), [(hostname(), GONE), ("elsewhere", ME)])
def test_a_process_that_is_gone_or_on_another_machine_has_failed(
    engine: Engine, instance: DagsterInstance, close_lost: Callable[[], None], host: str, process: ProcessId
) -> None:
    row = expired(engine, instance, process, host=host)
    assert health(instance, row) is WorkerStatus.FAILED
    close_lost()
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.error) == (Status.FAILED, f"the lease of runner {row.lease_owner} ran out")
    assert [run.status for run in instance.get_runs()] == [DagsterRunStatus.FAILURE]


def test_a_row_that_was_claimed_and_never_started_is_no_failure_and_waits_again(
    engine: Engine, instance: DagsterInstance, close_lost: Callable[[], None]
) -> None:
    row = expired(engine, instance, None, host="elsewhere")
    assert health(instance, row) is WorkerStatus.RUNNING
    close_lost()
    assert rows.get(engine, row.id).status is Status.QUEUED
    assert health(instance, row) is WorkerStatus.RUNNING


def test_after_an_outage_the_leases_of_other_machines_count_once_their_runners_had_the_time_to_renew_them() -> None:
    lease, pause = leases.LEASE.total_seconds(), runners.ALIVE_FOR.total_seconds() + 1
    contact = Contact()
    assert not contact.outlasts_lease(0.0)
    beats = [*range(0, int(lease) + 1, 2)]
    for now in beats:
        contact.note_heartbeat(now)
        assert contact.outlasts_lease(now) is (now >= lease)
    assert not contact.outlasts_lease(beats[-1] + pause)
    back = beats[-1] + 3600
    contact.note_heartbeat(back)
    assert not contact.outlasts_lease(back)
    assert not contact.outlasts_lease(back + pause)


def test_after_an_outage_a_run_of_another_machine_goes_on_and_one_of_this_machine_is_closed_at_once(
    settings: Settings, engine: Engine, instance: DagsterInstance
) -> None:
    elsewhere = expired(engine, instance, ME, host="elsewhere")
    here = expired(engine, instance, GONE, host=hostname())
    with selectors.DefaultSelector() as selector:
        processes = RunProcesses(settings, engine, instance, selector, RunnerMetrics(), owner=ME.full_name)
        close_expired_rows(processes, of_other_machines=False)
    assert rows.get(engine, elsewhere.id) == elsewhere
    assert rows.get(engine, here.id).status is Status.FAILED


def test_of_two_runners_that_find_a_left_process_one_answers_for_it_and_the_other_leaves_it_alone(
    settings: Settings, engine: Engine, instance: DagsterInstance, child: ProcessId
) -> None:
    row = expired(engine, instance, child, host=hostname(), runner=GONE)
    with selectors.DefaultSelector() as selector:
        first, second = (
            RunProcesses(settings, engine, instance, selector, RunnerMetrics(), owner=owner.full_name)
            for owner in (ME, PARENT)
        )
        for runner in (first, second):
            runner.adopt(row, child)
        assert (row.id in first, row.id in second) == (True, False)
        assert rows.get(engine, row.id).lease_owner == ME.full_name
        first.forget(row.id)


def test_a_process_whose_start_was_noted_and_not_answered_starts_its_run(engine: Engine) -> None:
    row = rows.enqueue(engine, rows.DAGSTER_RUN, {})
    leases.claim(engine, "runner", 1)
    with losing_answer(engine) as losing:
        assert leases.mark_started(engine, "runner", row.id, ME)
    assert losing.is_lost
    assert not leases.mark_started(engine, "runner", row.id, PARENT)


def test_an_adoption_that_was_not_answered_is_one(engine: Engine) -> None:
    row = rows.enqueue(engine, rows.DAGSTER_RUN, {})
    leases.claim(engine, "gone", 1)
    with losing_answer(engine):
        assert leases.adopt(engine, "gone", "runner", row.id)
    assert not leases.adopt(engine, "gone", "other", row.id)

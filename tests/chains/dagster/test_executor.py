"""A run of a chain as a Dagster run: its graph, its steps, their colours. Fails if an upgrade moves what it uses."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from dagster import DagsterEventType, DagsterRunStatus, JobDefinition, build_reconstructable_job
from dagster._core.execution.stats import StepEventStatus
from dagster._grpc.impl import core_execute_run

from assets.chains.jobs import chain_run
from assets.chains.loading import chain_jobs, load_enabled_chains
from assets.chains.names import CHAIN_ID_TAG, VERSION_TAG
from assets.chains.recording import who_asked
from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.definitions import update_chain
from platform_defs.chains.kinds_of_work import CHAIN_RUN_TAG
from platform_defs.chains.runs import operations
from platform_defs.chains.runs.queries import get_run, list_drives, list_nodes
from platform_defs.chains.runs.starting import start_chain
from platform_defs.runner import parking
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.work import leases, rows
from platform_defs.work.jobs import TRIGGER_TAG
from tests.chains.dagster.shown import Shown, needs_file, print_node, shell, shown
from tests.waiting import until


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with shown(tmp_path_factory.mktemp("home")) as found:
        yield found


def test_a_run_is_recorded_with_its_graph_its_tags_and_what_its_nodes_print(platform: Shown) -> None:
    chain = platform.chain("nightly load", [print_node("a"), print_node("b.1", "a"), print_node("b-1", "a")])
    run_id = platform.start(chain)
    (run,) = platform.execute_queued()
    assert run.status is DagsterRunStatus.SUCCESS
    assert run.job_name.startswith("chain_nightly_load_")
    assert run.tags[CHAIN_RUN_TAG] == run_id
    assert run.tags[TRIGGER_TAG] == "test"
    assert (run.tags[CHAIN_ID_TAG], run.tags[VERSION_TAG]) == (chain.chain_id, "1")
    snapshot = platform.instance.get_job_snapshot(str(run.job_snapshot_id))
    nodes = [item.node_name for item in snapshot.dep_structure_snapshot.node_invocation_snaps]
    assert len(nodes) == 3
    assert "a" in nodes
    assert platform.step(run, "a") == ["STEP_START", "STEP_OUTPUT", "STEP_SUCCESS"]
    assert "I am a" in platform.logged(run)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("api", "airflow (API)"),
        ("command", "airflow"),
        ("schedule 0 2 * * * UTC", "schedule 0 2 * * * UTC"),
        ("table ORDERS 20260301", "arrival of ORDERS 20260301"),
        ("node a of run 1", "node a of run 1"),
    ],
)
def test_a_run_says_who_asked_for_it(platform: Shown, trigger: str, expected: str) -> None:
    chain = platform.chain(f"asked {trigger}", [print_node("a")])
    started = start_chain(platform.engine, chain.chain_id, params={}, actor="airflow", trigger=trigger)
    run = get_run(platform.engine, started.run_id)
    (drive,) = list_drives(platform.engine, started.run_id)
    assert who_asked(run, drive) == expected
    operations.stop_run(platform.engine, started.run_id, actor="test")
    platform.execute_queued()


def test_a_failed_node_fails_the_dagster_run_and_a_retry_is_a_further_one_of_the_same_root(
    platform: Shown, tmp_path: Path
) -> None:
    chain = platform.chain("failing", [print_node("a"), needs_file("bad", tmp_path / "f", "a"), print_node("c", "bad")])
    run_id = platform.start(chain)
    (first,) = platform.execute_queued()
    assert first.status is DagsterRunStatus.FAILURE
    assert platform.step(first, "bad") == ["STEP_START", "STEP_FAILURE"]
    assert platform.step(first, "c") == []
    advice = f"retry it, and the run goes on from there: platform chains retry {run_id} bad. "
    assert [text for text in platform.said(first) if advice in text], "what to do is said where the UI shows it"
    (tmp_path / "f").touch()
    operations.retry_node(platform.engine, run_id, "bad", actor="key:1", reason="looked at it")
    (second,) = platform.execute_queued()
    assert second.status is DagsterRunStatus.SUCCESS
    assert (second.parent_run_id, second.root_run_id) == (first.run_id, first.run_id)
    assert second.tags[TRIGGER_TAG] == "operator (retry)"
    assert {step for step, _ in platform.events(second)} == {"bad", "c"}
    assert get_run(platform.engine, run_id).status == "SUCCESS"


def test_what_failed_in_an_earlier_drive_and_was_not_retried_is_red_again(platform: Shown, tmp_path: Path) -> None:
    chain = platform.chain("two bad", [needs_file("bad", tmp_path / "f"), needs_file("worse", tmp_path / "never")])
    run_id = platform.start(chain)
    platform.execute_queued()
    (tmp_path / "f").touch()
    operations.retry_node(platform.engine, run_id, "bad", actor="key:1")
    (second,) = platform.execute_queued()
    assert second.status is DagsterRunStatus.FAILURE
    assert platform.step(second, "bad") == ["STEP_START", "STEP_OUTPUT", "STEP_SUCCESS"]
    assert platform.step(second, "worse") == ["STEP_FAILURE"]


def test_automatic_attempts_are_retries_of_the_step(platform: Shown, tmp_path: Path) -> None:
    second_time = f"test -e {tmp_path}/again || (touch {tmp_path}/again; exit 1)"
    node = shell("a", second_time, retry={"maxAttempts": 2, "backoffMillis": 1})
    platform.start(platform.chain("again", [node]))
    (run,) = platform.execute_queued()
    assert run.status is DagsterRunStatus.SUCCESS
    expected = ["STEP_START", "STEP_UP_FOR_RETRY", "STEP_RESTARTED", "STEP_OUTPUT", "STEP_SUCCESS"]
    assert platform.step(run, "a") == expected


@contextmanager
def doing(work: Callable[[], object]) -> Iterator[None]:
    """Does something while this thread executes a run."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        yield
        done.result()


def test_a_step_that_is_retried_while_its_run_goes_on_turns_green_and_so_does_the_run(
    platform: Shown, tmp_path: Path
) -> None:
    gate = shell("gate", f"until test -e {tmp_path}/open; do sleep 0.05; done")
    nodes = [needs_file("bad", tmp_path / "f"), print_node("below", "bad"), gate]
    run_id = platform.start(platform.chain("held back", nodes))

    def retry() -> None:
        until("bad has failed", lambda: statuses(platform, run_id)["bad"] == "FAILED")
        (tmp_path / "f").touch()
        operations.retry_node(platform.engine, run_id, "bad", actor="key:1", reason="it is there now")
        until("below has succeeded", lambda: statuses(platform, run_id)["below"] == "SUCCESS")
        (tmp_path / "open").touch()

    with doing(retry):
        (run,) = platform.execute_queued()
    assert run.status is DagsterRunStatus.SUCCESS
    expected = ["STEP_START", "STEP_FAILURE", "STEP_RESTARTED", "STEP_OUTPUT", "STEP_SUCCESS"]
    assert platform.step(run, "bad") == expected
    assert "Attempt 2 was asked for by key:1: it is there now." in platform.logged(run)
    stats = {item.step_key: item.status for item in platform.instance.get_run_step_stats(run.run_id)}
    assert stats["bad"] is StepEventStatus.SUCCESS


def test_a_stopped_run_is_canceled_in_dagster(platform: Shown, tmp_path: Path) -> None:
    run_id = platform.start(
        platform.chain("long", [shell("a", f"touch {tmp_path}/begun; sleep 1000"), print_node("b", "a")])
    )

    def stop() -> None:
        until("a has begun", (tmp_path / "begun").exists)
        operations.stop_run(platform.engine, run_id, actor="key:1")

    with doing(stop):
        (run,) = platform.execute_queued()
    assert run.status is DagsterRunStatus.CANCELED
    assert statuses(platform, run_id) == {"a": "STOPPED", "b": "SKIPPED"}


def test_a_run_that_waits_leaves_its_dagster_run_and_goes_on_in_it(platform: Shown) -> None:
    platform.chain("inner", [print_node("x")])
    outer = platform.chain("outer", [{"id": "sub", "type": "chain", "cfg": {"chain": "inner"}}, print_node("b", "sub")])
    run_id = platform.start(outer)
    left, inner, continued = platform.execute_queued()
    assert left.run_id == continued.run_id != inner.run_id
    assert continued.status is inner.status is DagsterRunStatus.SUCCESS
    assert statuses(platform, run_id) == {"sub": "SUCCESS", "b": "SUCCESS"}
    assert platform.step(continued, "sub") == ["STEP_START", "STEP_OUTPUT", "STEP_SUCCESS"]
    kinds = [e.dagster_event.event_type for e in platform.instance.all_logs(left.run_id) if e.dagster_event]
    assert kinds.count(DagsterEventType.RUN_START) == kinds.count(DagsterEventType.RUN_SUCCESS) == 1
    assert DagsterEventType.RUN_FAILURE not in kinds


def test_a_chain_that_is_changed_while_it_runs_changes_nothing_in_that_run(platform: Shown) -> None:
    chain = platform.chain("changing", [print_node("a"), print_node("b", "a")])
    before = platform.start(chain)
    new = {"nodes": [print_node("x")]}
    types = all_node_types(platform.engine)
    update_chain(
        platform.engine, types, chain.chain_id, name="changing", description=None, dag_json=new, version=1, actor="t"
    )
    after = platform.start(chain)
    first, second = platform.execute_queued()
    assert first.status is second.status is DagsterRunStatus.SUCCESS
    assert set(statuses(platform, before)) == {"a", "b"}
    assert set(statuses(platform, after)) == {"x"}
    assert (first.tags[VERSION_TAG], second.tags[VERSION_TAG]) == ("1", "2")


def test_launching_the_job_where_no_runner_is_starts_the_chain(
    platform: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_is_allowed", False)
    chain = platform.chain("launched", [print_node("a"), print_node("b", "a")])
    job = build_reconstructable_job(__name__, "job_of_chain", (chain.chain_id,))
    run = platform.instance.create_run_for_job(
        job.get_definition(),
        run_config={"execution": {"config": {"params": {"day": "20260101"}}}},
        job_code_origin=job.get_python_origin(),
    )
    for _ in core_execute_run(job, run, platform.instance, inject_env_vars=False):
        pass
    ended = platform.instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is DagsterRunStatus.SUCCESS
    started = get_run(platform.engine, ended.tags[CHAIN_RUN_TAG])
    assert (started.status, started.params, started.actor) == ("SUCCESS", {"day": "20260101"}, "operator")
    # the recovery sensor closes the row when it sees that this run has ended
    (row,) = leases.rows_handed_to_dagster(platform.engine)
    assert row.run_id == run.run_id
    rows.finish(platform.engine, row.id, rows.Status.SUCCEEDED)


def job_of_chain(chain_id: str) -> JobDefinition:
    (job,) = chain_jobs(chain for chain in load_enabled_chains() if chain.chain_id == chain_id)
    return job


def test_the_generic_job_drives_a_run_under_another_launcher(platform: Shown) -> None:
    run_id = platform.start(platform.chain("elsewhere", [print_node("a"), print_node("b", "a")]))
    (row,) = leases.claim(platform.engine, leases.DAGSTER, 1, lease=None)
    launch = job_launch(row.kind, row.payload)
    assert launch.job_name == chain_run.name
    result = chain_run.execute_in_process(run_config=dict(launch.run_config), instance=platform.instance)
    assert result.success
    assert get_run(platform.engine, run_id).status == "SUCCESS"
    assert "I am a" in platform.logged(result.dagster_run)
    rows.finish(platform.engine, row.id, rows.Status.SUCCEEDED)


def statuses(platform: Shown, run_id: str) -> dict[str, str]:
    return {node.node_id: str(node.status) for node in list_nodes(platform.engine, run_id)}

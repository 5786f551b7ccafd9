"""Whether a check is shown is decided as Dagster does: what it hides is reported again, and nothing else."""

import asyncio
from collections.abc import Callable

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSpec,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    MaterializeResult,
    asset,
    materialize,
)
from dagster._core.loader import LoadingContextForTest

from assets.shown_checks import newest_evaluations

WINDOWS = AssetKey(["windows"])
KEY = AssetCheckKey(WINDOWS, "complete")
Step = Callable[[DagsterInstance], object]


@asset(key=WINDOWS, check_specs=[AssetCheckSpec("complete", asset=WINDOWS)])
def checked() -> MaterializeResult:
    return MaterializeResult(check_results=[AssetCheckResult(passed=False, description="one is missing")])


@asset(key=WINDOWS)
def unchecked() -> None:
    pass


def run_with_the_check(instance: DagsterInstance) -> None:
    materialize([checked], instance=instance)


def run_without_it(instance: DagsterInstance) -> None:
    materialize([unchecked], instance=instance)


def evaluate(instance: DagsterInstance) -> None:
    instance.report_runless_asset_event(AssetCheckEvaluation(WINDOWS, "complete", passed=False))


def report_window(instance: DagsterInstance) -> None:
    instance.report_runless_asset_event(AssetMaterialization(WINDOWS))


@pytest.mark.parametrize(
    ("steps", "is_shown"),
    [
        ([evaluate], True),
        ([run_with_the_check], True),
        ([run_with_the_check, run_without_it], False),
        ([evaluate, run_without_it], False),
        ([evaluate, report_window], True),
        ([run_with_the_check, report_window], False),
        ([run_with_the_check, run_without_it, run_with_the_check], True),
    ],
    ids=lambda value: "-".join(step.__name__ for step in value) if isinstance(value, list) else None,
)
def test_an_evaluation_is_shown_as_dagster_shows_it(steps: list[Step], is_shown: bool) -> None:
    with DagsterInstance.ephemeral() as instance:
        assert newest_evaluations(instance, [KEY]) == {}
        for step in steps:
            step(instance)
        assert newest_evaluations(instance, [KEY])[KEY][1] is is_shown
        record = instance.event_log_storage.get_latest_asset_check_execution_by_key([KEY])[KEY]
        assert asyncio.run(record.targets_latest_materialization(LoadingContextForTest(instance))) is is_shown

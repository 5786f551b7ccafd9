"""Launching the job of a chain in the Dagster UI starts the chain: the launched Dagster run shows the new run."""

from collections.abc import Mapping
from typing import Any

from dagster import Failure
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from sqlalchemy import Engine

from assets.chains.names import CHAIN_ID_TAG, aliases
from platform_defs.chains.definitions import get_chain
from platform_defs.chains.errors import ChainsError
from platform_defs.chains.kinds_of_work import CHAIN_RUN_TAG
from platform_defs.chains.runs.drives import Drive
from platform_defs.chains.runs.starting import start_chain
from platform_defs.runner import parking
from platform_defs.work.jobs import OPERATOR, TRIGGER_TAG, WORK_TAG, tag_of


def start_from_ui(
    engine: Engine, context: PlanOrchestrationContext, plan: ExecutionPlan, params: Mapping[str, Any]
) -> Drive:
    """Starts the chain of the job as it is now, with this Dagster run as its first drive."""
    run = context.dagster_run
    chain_id = context.job.get_definition().tags.get(CHAIN_ID_TAG)
    if chain_id is None:
        raise Failure("this run shows no run of a chain, and its job is that of no chain", allow_retries=False)
    try:
        chain = get_chain(engine, chain_id)
        _check_steps(chain.name, {node["id"] for node in chain.dag_json["nodes"]}, set(plan.step_keys_to_execute))
        trigger = tag_of(run.tags, TRIGGER_TAG) or "ui"
        started = start_chain(
            engine, chain_id, params=params, actor=OPERATOR, trigger=trigger, dagster_run_id=run.run_id
        )
    except ChainsError as error:
        raise Failure(f"the chain was not started: {error}", allow_retries=False) from None
    assert started.drive is not None, "only a request with a key may find a run that exists already"
    # Without a runner the recovery sensor finds the Dagster run of a row by this tag.
    work_tag = {} if parking.is_allowed() else {WORK_TAG: str(started.drive.work_id)}
    context.instance.add_run_tags(run.run_id, {CHAIN_RUN_TAG: started.run_id, **work_tag})
    return started.drive


def _check_steps(name: str, node_ids: set[str], step_keys: set[str]) -> None:
    """The launched run has the steps of the definitions that the UI had loaded, which may be a moment old."""
    if set(aliases(node_ids).values()) != step_keys:
        raise ChainsError(
            f"expected the launch of all nodes of {name} as it is now; if it was just changed, launch it again, and to"
            " execute failed nodes again, retry them"
        )

"""The kind of work of job chains: one drive of a run."""

from collections.abc import Mapping
from typing import Any

from platform_defs.work.jobs import JobLaunch, KindsOfWork

CHAIN_RUN = "chain_run"
CHAIN_RUN_TAG = "platform/chain_run"


def _launch_chain_run(payload: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(
        job_name="chain_run",
        run_config={"ops": {"drive_run": {"config": {"run_id": payload["run_id"]}}}},
        tags={CHAIN_RUN_TAG: payload["run_id"]},
        trigger="chain",
        prepared_by="assets.chains.recording:prepare_run",
    )


KINDS_OF_WORK: KindsOfWork = {CHAIN_RUN: _launch_chain_run}

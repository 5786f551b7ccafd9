"""The kinds of work of table arrival: executions of models, and reports of arrivals to Dagster."""

from collections.abc import Mapping
from typing import Any

from platform_defs.work.jobs import OPERATOR, JobLaunch, KindsOfWork

MODEL_RUN = "model_run"
ARRIVAL_REPORT = "arrival_report"
MODEL_TAG = "platform/model"
OP_TIME_TAG = "platform/op_time"
# the tag of a run of arrival_report that names the tables whose arrivals it reported
TABLES_TAG = "platform/tables"


def _launch_model_run(payload: Mapping[str, Any]) -> JobLaunch:
    model_id, op_time = payload["model_id"], payload["op_time"]
    return JobLaunch(
        job_name=MODEL_RUN,
        run_config={"ops": {"execute_model": {"config": {"model_id": model_id, "op_time": op_time}}}},
        tags={MODEL_TAG: model_id, OP_TIME_TAG: op_time},
        trigger=payload.get("trigger", OPERATOR),
    )


def _launch_arrival_report(payload: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(job_name=ARRIVAL_REPORT, trigger="arrivals")


KINDS_OF_WORK: KindsOfWork = {MODEL_RUN: _launch_model_run, ARRIVAL_REPORT: _launch_arrival_report}

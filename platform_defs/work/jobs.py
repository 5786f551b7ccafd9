"""The kinds of work: which job a row becomes, and with which configuration. Knows no Dagster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platform_defs.work.errors import UnknownKind

# names the row on the run that was made for it
WORK_TAG = "platform/work"
LINEAGE_APPLY = "lineage_apply"
MODEL_RUN = "model_run"
ARRIVAL_REPORT = "arrival_report"
WEBHOOK_SEND = "webhook_send"
MODEL_TAG = "platform/model"
OP_TIME_TAG = "platform/op_time"


@dataclass(frozen=True)
class Drive:
    """What to execute for a row: a job of the code location, its run configuration, tags and partition."""

    job_name: str
    run_config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    partition_key: str | None = None


def _selfcheck(payload: Mapping[str, Any]) -> Drive:
    return Drive(job_name="selfcheck")


def _lineage_apply(payload: Mapping[str, Any]) -> Drive:
    return Drive(job_name="lineage_apply")


def _model_run(payload: Mapping[str, Any]) -> Drive:
    model_id, op_time = payload["model_id"], payload["op_time"]
    return Drive(
        job_name="model_run",
        run_config={"ops": {"execute_model": {"config": {"model_id": model_id, "op_time": op_time}}}},
        tags={MODEL_TAG: model_id, OP_TIME_TAG: op_time},
    )


def _arrival_report(payload: Mapping[str, Any]) -> Drive:
    return Drive(job_name="arrival_report")


def _webhook_send(payload: Mapping[str, Any]) -> Drive:
    return Drive(job_name="webhook_send")


KINDS: Mapping[str, Callable[[Mapping[str, Any]], Drive]] = {
    "selfcheck": _selfcheck,
    LINEAGE_APPLY: _lineage_apply,
    MODEL_RUN: _model_run,
    ARRIVAL_REPORT: _arrival_report,
    WEBHOOK_SEND: _webhook_send,
}


def drive(kind: str, payload: Mapping[str, Any]) -> Drive:
    if kind not in KINDS:
        raise UnknownKind(f"unknown kind of work {kind!r}; expected one of {', '.join(sorted(KINDS))}")
    return KINDS[kind](payload)

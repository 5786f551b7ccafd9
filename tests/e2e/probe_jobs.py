"""Jobs for the runner's tests: copied into a copy of the tree as assets/probe.py, never part of the platform."""

import time

from dagster import Definitions, In, Nothing, OpExecutionContext, job, op

VERSION = "first"


@op(config_schema={"seconds": float})
def hold(context: OpExecutionContext) -> None:
    print(f"printed by {context.run_id}", flush=True)  # noqa: T201
    time.sleep(context.op_config["seconds"])


@job
def holding() -> None:
    hold()


@op
def one(context: OpExecutionContext) -> None:
    context.add_output_metadata({"version": VERSION})


@op(ins={"after": In(Nothing)})
def two() -> None:
    pass


@job
def two_ops() -> None:
    two(one())


def definitions() -> Definitions:
    return Definitions(jobs=[holding, two_ops])

"""Types with which each system declares its kinds of work: from the payload of a row to the job that it launches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# The tag of a Dagster run that holds the id of the row of work for which the run was made.
WORK_TAG = "platform/work"


@dataclass(frozen=True)
class JobLaunch:
    """The job of the code location that a row of work launches, with its run configuration, tags and partition."""

    job_name: str
    run_config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    partition_key: str | None = None


# Kind of work -> the function that turns the payload of a row of that kind into the launch of its job.
KindsOfWork: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], JobLaunch]]

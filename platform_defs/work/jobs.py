"""Types with which each system declares its kinds of work: from the payload of a row to the job that it launches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# The tag of a Dagster run that holds the id of the row of work for which the run was made.
WORK_TAG = "platform/work"
# The tag of every run that says why it was made: `arrival of TABLE`, `recovery`, `operator` and so on.
TRIGGER_TAG = "platform/trigger"
OPERATOR = "operator"
RECOVERY = "recovery"


@dataclass(frozen=True)
class JobLaunch:
    """The job of the code location that a row of work launches, with its run configuration, tags and partition."""

    job_name: str
    run_config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    partition_key: str | None = None
    # why the run is made, for TRIGGER_TAG
    trigger: str = OPERATOR
    # `module:function` that prepares the run in the process that executes it, if the job is not one of the code
    # location but built for this run alone (runner/recorded_runs.py, PreparedRun); other launchers use job_name
    prepared_by: str | None = None

    def run_tags(self, work_id: int) -> dict[str, str]:
        """All tags of the run that is made for a row of work."""
        return {**self.tags, TRIGGER_TAG: self.trigger, WORK_TAG: str(work_id)}


# Kind of work -> the function that turns the payload of a row of that kind into the launch of its job.
KindsOfWork: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], JobLaunch]]

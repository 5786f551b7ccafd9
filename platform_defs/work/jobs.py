"""Types with which each system declares its kinds of work: from the payload of a row to the job that it launches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# The UI of Dagster shows no tag that begins like this.
_HIDDEN = ".dagster/"
# The tag of a Dagster run that holds the id of the row of work for which the run was made.
WORK_TAG = f"{_HIDDEN}platform_work"
# The tag of a run that started without the runner: the code server whose process executes it.
CODE_SERVER_TAG = f"{_HIDDEN}platform_code_server"
# The tags of a run that name the runner and the process which execute it.
RUNNER_TAG = f"{_HIDDEN}platform_runner"
PID_TAG = f"{_HIDDEN}platform_pid"
# The tag of every run that says who asked for it: `arrival of TABLE`, `recovery`, `operator` and so on. The UI shows
# its value as what launched the run; without it, and without a sensor or schedule, it says "Manually launched".
TRIGGER_TAG = "user"
# What these tags are called in runs of an earlier release.
FORMER_TAGS = {
    WORK_TAG: "platform/work",
    CODE_SERVER_TAG: "platform/code_server",
    TRIGGER_TAG: "platform/trigger",
}
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


def tag_of(tags: Mapping[str, str], name: str) -> str | None:
    """The value of one of these tags, whichever release wrote it."""
    return tags.get(name, tags.get(FORMER_TAGS[name]))


# Kind of work -> the function that turns the payload of a row of that kind into the launch of its job.
KindsOfWork: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], JobLaunch]]

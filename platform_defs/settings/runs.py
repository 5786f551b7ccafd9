"""Settings of the runner: how many runs of which kind execute at a time, and what counts as stuck."""

from typing import Literal

from pydantic import Field

from platform_defs.settings.base import Topic


class RunSettings(Topic):
    """Slots of the runner and their shares."""

    runner_slots: int = Field(
        8, ge=1, le=256, description="Runs that the runner executes at a time; others wait in order"
    )
    ingest_slots: int = Field(
        0, ge=0, le=256, description="Slots of the runner that runs of ingest may hold; 0 means half of them"
    )
    runner_reserved: int = Field(
        -1,
        ge=-1,
        le=256,
        description="Slots of the runner that only executions which arrivals made due may take; -1 means a quarter",
    )
    stuck_after_s: float = Field(
        120.0, ge=1, le=86_400, description="Seconds after which something that does not move on is shown as stuck"
    )
    runner_grace_s: float = Field(3.0, ge=0, le=60, description="Seconds a run has to end after SIGTERM before SIGKILL")
    runner_orphans: Literal["finish", "end"] = Field(
        "finish",
        description="Whether runs that survived the crash of their runner finish or are ended by the next runner",
    )

    @property
    def slots_of_ingest(self) -> int:
        """At least one, and never all where there are two or more: other systems must find a slot."""
        most = max(1, self.runner_slots - 1)
        return min(most, self.ingest_slots or max(1, self.runner_slots // 2))

    @property
    def reserved_slots(self) -> int:
        """Never all of them: other work must find a slot, also if there is only one."""
        wanted = self.runner_slots // 4 if self.runner_reserved < 0 else self.runner_reserved
        return min(wanted, self.runner_slots - 1)

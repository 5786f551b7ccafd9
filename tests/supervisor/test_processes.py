"""The processes of the platform fit together: who stops one waits for longer than it ever takes to stop."""

from pathlib import Path

from platform_defs.api.http.server import LAST_RESORT_S
from platform_defs.settings import Settings
from platform_defs.stopping import STOP_S
from platform_defs.supervisor.processes import DemoSourceSpec, child_specs
from platform_defs.supervisor.supervisor import SupervisorLimits
from platform_defs.work.runners import LEAVE_AFTER_S

# After so many seconds these leave by themselves, whatever hangs in them. The kill of any other child loses nothing.
LEAVES_AFTER_S = {"api": LAST_RESORT_S, "runner": LEAVE_AFTER_S}


def test_no_process_that_could_lose_something_is_killed_before_it_leaves_by_itself(tmp_path: Path) -> None:
    specs = child_specs(
        Settings(home=tmp_path), 4000, tmp_path / "workspace.yaml", {}, demo_source=DemoSourceSpec(4001)
    )
    careful = {spec.name: spec.grace_s for spec in specs if not spec.loses_nothing}
    assert careful.keys() == LEAVES_AFTER_S.keys()
    # a second more, because the end of a process takes a while on a busy machine
    too_short = {name: grace for name, grace in careful.items() if grace < LEAVES_AFTER_S[name] + 1}
    assert too_short == {}


def test_a_stop_of_everything_takes_ten_seconds_at_most(tmp_path: Path) -> None:
    specs = child_specs(
        Settings(home=tmp_path), 4000, tmp_path / "workspace.yaml", {}, demo_source=DemoSourceSpec(4001)
    )
    assert max(spec.grace_s for spec in specs) + SupervisorLimits().after_kill_s < STOP_S

"""What `platform demo` says of a demo that is not complete, and of one that is gone."""

from datetime import UTC, datetime
from pathlib import Path

from platform_defs import dagster_instance
from platform_defs.demo.state import DemoState, DemoStatus, write_state
from platform_defs.settings import Settings
from tests.commands.command_line import RunPlatform


def test_a_demo_that_was_stopped_midway_is_shown_as_such_and_can_be_removed_twice(
    run_platform: RunPlatform, tmp_path: Path
) -> None:
    write_state(tmp_path / "home", DemoState(DemoStatus.BEGUN, datetime.now(UTC)))
    code, _, err = run_platform("demo", "show")
    assert code == 1
    assert "the demo is not written yet" in err
    assert "the next `platform up` completes one that was stopped" in err
    write_state(tmp_path / "home", DemoState(DemoStatus.WRITTEN, datetime.now(UTC)))
    assert run_platform("demo", "show")[2].endswith("; `platform up` starts it\n"), "it is written already"
    dagster_instance.prepare(Settings.load())
    code, out, _ = run_platform("demo", "remove")
    assert (code, out.startswith("the demo is removed")) == (0, True)
    code, out, _ = run_platform("demo", "remove")
    assert (code, out.startswith("the demo had been removed already")) == (0, True)
    assert "there is no demo in" in run_platform("demo", "show")[2]

"""What somebody who sees the platform for the first time may open, click and try."""

import os
import sysconfig
from pathlib import Path

from platform_defs.demo import story
from platform_defs.demo.doors import RunningPlatform
from platform_defs.demo.shop import WRONG_ORDER, Calendar
from platform_defs.demo.state import DemoState


def guide_lines(platform: RunningPlatform, state: DemoState) -> list[tuple[str, str]]:
    """Five lines, each with what it is about. Followed in their order, each does what it says."""
    batch = Calendar(state.born).wrong
    ui, api = platform.ui, platform.api
    command = platform_command()
    return [
        (
            "1 open",
            f"the batch {batch} is red, and its run says why:"
            f" {ui}/assets/models/{story.SALES}?view=partitions&partition={batch}",
        ),
        (
            "2 click",
            f"Launch Run, which corrects order {WRONG_ORDER}: {ui}/locations/platform/jobs/chain_{story.CORRECT}"
            "/playground then on page 1: Materialize, Failed and missing, Launch 1 run",
        ),
        (
            "3 retry",
            f"the chain {story.CLOSE} goes on where it failed: curl -X POST"
            f" {api}/api/v1/runs/{state.chain_run}/nodes/{story.FAILED_NODE}:retry"
            f' -H "Authorization: Bearer {platform.key}"',
        ),
        ("4 see", f"what the subscriber of the shop's revenue was told: {command} webhooks deliveries"),
        ("5 end", f"takes the demo away, and nothing of yours: {command} demo remove"),
    ]


def platform_command() -> str:
    """The command as somebody in this folder types it."""
    path = Path(sysconfig.get_path("scripts"), "platform")
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return "platform" if str(path.parent) in os.environ.get("PATH", "").split(os.pathsep) else str(path)

"""Runs the supervisor over children that a test describes as JSON on stdin: `python harness.py HOME`."""

import asyncio
import json
import os
import sys
from pathlib import Path

from platform_defs.errors import PlatformError
from platform_defs.supervisor import home as home_lock
from platform_defs.supervisor.child import Backoff, Broken, ChildSpec, NotReady
from platform_defs.supervisor.home import UpFile, lock_home
from platform_defs.supervisor.output import Output
from platform_defs.supervisor.supervisor import Supervisor, SupervisorLimits
from tests.waiting import PATIENCE_S


def ready_when(path: Path):
    def probe(started_at: float) -> None:
        if not path.exists():
            raise NotReady(f"{path.name} is missing")
        if path.read_text() == "broken":
            raise Broken("it says that it is broken")

    return probe


def main() -> None:
    # the leftovers of a supervisor that was killed may take that long to end on a busy machine
    home_lock.LEFTOVERS_END_WITHIN_S = PATIENCE_S
    home = Path(sys.argv[1])
    wanted = json.load(sys.stdin)
    afterwards = wanted.get("afterwards")
    specs = [
        ChildSpec(
            name=child["name"],
            command=[sys.executable, "-u", "-c", child["code"]],
            environment=os.environ | {"HOME_FOLDER": str(home)},
            grace_s=child.get("grace_s", 6.0),
            loses_nothing=child.get("loses_nothing", False),
            **({"probe": ready_when(home / child["ready"])} if "ready" in child else {}),
        )
        for child in wanted["children"]
    ]
    limits = SupervisorLimits(**wanted.get("limits", {}), backoff=Backoff(**wanted.get("backoff", {})))
    try:
        with lock_home(home) as lock:
            content, key = {"api": "http://127.0.0.1:1", "ui": "http://127.0.0.1:2"}, home / "demo.key"
            up_file = UpFile(
                home / "up.json", lambda: {**content, "demo_key": key.read_text() if key.exists() else None}
            )
            once = None
            if afterwards is not None:
                once = ChildSpec("once", [sys.executable, "-u", "-c", afterwards], grace_s=1.0, loses_nothing=True)
            output = Output([spec.name for spec in [*specs, *([] if once is None else [once])]])
            supervisor = Supervisor(
                specs,
                output,
                on_change=up_file.write,
                descriptors=[lock],
                limits=limits,
                afterwards=once,
                on_end=lambda code: output.say(f"once ended with {code}"),
            )
            try:
                asyncio.run(supervisor.run())
            finally:
                up_file.remove()
    except PlatformError as error:
        sys.exit(f"platform: {error}")


if __name__ == "__main__":
    main()

"""Launch to STARTED and launch to SUCCESS of a two-step job: our runner against Dagster's default launcher, in one run.

    .venv/bin/python -m bench.runner [RUNS]

Both launch the selfcheck through GraphQL on a platform of their own, one after the other, here, on embedded stores.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from platform_defs.store.engine import open_engine
from platform_defs.work import rows
from platform_defs.work.wake import wake
from tests.e2e.platform_up import PlatformUp

DEFAULT = "run_launcher: {module: dagster, class: DefaultRunLauncher}\n"


SPANS = ("request to STARTED", "request to SUCCESS", "launch to STARTED", "launch to SUCCESS")


def launches(up: PlatformUp, runs: int) -> list[list[float]]:
    """Seconds to the run's own start and end: from the request, and from the moment Dagster calls its launcher."""
    spans: list[list[float]] = []
    for _ in range(runs):
        asked = time.time()
        run = up.until_status(up.launch("selfcheck"), "SUCCESS", "FAILURE", seconds=120)
        assert run["status"] == "SUCCESS", run
        begins, ends = (asked, run["stats"]["launchTime"]), (run["startTime"], run["endTime"])
        spans.append([end - begin for begin in begins for end in ends])
    return spans


def throughput(home: Path, runs: int) -> float:
    """Runs per minute with 8 slots, as rows of work."""
    engine = open_engine(f"sqlite:///{home}/platform.db")
    began = time.monotonic()
    written = [rows.enqueue(engine, "selfcheck", {}) for _ in range(runs)]
    wake(home)
    for row in written:
        assert rows.wait(engine, row.id, 300).status is rows.Status.SUCCEEDED
    elapsed = time.monotonic() - began
    engine.dispose()
    return runs / elapsed * 60


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "default.yaml")
        config.write_text(DEFAULT)
        for name, environment in (("default", {"PLATFORM_DAGSTER_CONFIG": str(config)}), ("warm", {})):
            home = Path(folder, name)
            up = PlatformUp(home, environment).until_ready()
            try:
                launches(up, 1)  # caches of the webserver
                measured[name] = launches(up, runs)
                per_minute = throughput(home, 10 * runs) if name == "warm" else None
            finally:
                up.end()
    print(f"launch of a two-step job through GraphQL, {runs} runs each, one at a time, embedded stores, median")
    for index, span in enumerate(SPANS):
        default, warm = (statistics.median(run[index] for run in measured[name]) for name in ("default", "warm"))
        print(f"  {span}: default launcher {default:.2f} s, ours {warm:.2f} s, ratio {default / warm:.1f}x")
    print(f"  runs per minute with 8 slots (rows of work): {per_minute:.0f}")


if __name__ == "__main__":
    main()
